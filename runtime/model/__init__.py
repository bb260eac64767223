"""An opened checkpoint as users see it."""
