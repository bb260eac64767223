"""Recurrence: recurrent networks, convolutional recurrences and state-space models."""
