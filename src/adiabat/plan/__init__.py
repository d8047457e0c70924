"""What training costs, and what it gives for that."""
