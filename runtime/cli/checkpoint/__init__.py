"""Commands that convert, prune or export checkpoints."""
