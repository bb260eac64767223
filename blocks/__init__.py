"""What a node computes: one file a family, one registry."""
