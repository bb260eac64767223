"""Files merged with the specs that they extend or import, and where each part was written."""
