"""Studies: many runs from one document, compared with honest statistics."""
