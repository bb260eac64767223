"""The text of JSON files: reading it, finding places in it, and editing it."""
