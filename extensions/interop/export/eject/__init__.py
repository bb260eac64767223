"""Export to one file of plain PyTorch, `weft eject`."""
