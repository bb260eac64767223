"""What happens when a graph runs."""
