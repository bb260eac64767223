"""Export of trained models to other engines, or to one plain Python file."""
