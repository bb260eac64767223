"""A search for the best row of a study by its validation data."""
