"""Export of a model without a counterpart: plain PyTorch that transformers' Auto classes open."""
