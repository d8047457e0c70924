"""What a data set holds: counts, lengths, languages and faults."""
