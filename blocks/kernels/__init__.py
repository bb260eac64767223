"""The arithmetic of the blocks: one torch module for each block type."""
