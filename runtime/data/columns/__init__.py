"""Columns: types of data, from a value of a record to the inputs of a model."""
