"""Records of jobs, as result.json keeps them."""
