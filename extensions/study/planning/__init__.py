"""Planning a study: every run is checked, costed and compared before anything trains."""
