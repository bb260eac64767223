"""From weights to output sequences."""
