"""Blocks that pool a sequence, prepend vectors to it, or score its spans."""
