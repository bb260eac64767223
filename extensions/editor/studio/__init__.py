"""The studio: a spec as text and as a drawing, edited in a browser."""
