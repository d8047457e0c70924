"""Records of results, stored as result.json."""
