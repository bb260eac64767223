"""Recurrent networks, convolutional GRUs and state-space models."""
