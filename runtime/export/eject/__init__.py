"""Export to one file of plain PyTorch."""
