"""Changes to a built model that make training faster or smaller."""
