"""Export: a trained model in the form of another engine, or as one plain Python file."""
