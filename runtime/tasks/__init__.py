"""What is particular to one task."""
