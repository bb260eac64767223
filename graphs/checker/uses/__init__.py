"""Uses of blocks: which params have no effect, and which uses are alike."""
