"""The document of a study: its settings, its rows, and its JSON Schema."""
