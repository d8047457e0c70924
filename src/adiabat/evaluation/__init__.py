"""Tasks, suites, comparisons and analyses of embedding spaces."""
