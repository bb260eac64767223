"""Structure of axes: parts, shifts and joins of values of any kind, along time or features."""
