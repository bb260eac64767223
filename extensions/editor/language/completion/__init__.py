"""What can be written at a place of a text."""
