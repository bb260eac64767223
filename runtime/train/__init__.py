"""Training: loop, losses, optimizers, distribution and reports."""
