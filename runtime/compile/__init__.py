"""Compilation and kernel selection: torch.compile, prepacked weights, autotuning."""
