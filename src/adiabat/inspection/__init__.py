"""What a data set holds, before anything is trained or measured on it: counts, lengths, languages, and what is wrong with it."""
