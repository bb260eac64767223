"""Checkpoints of other libraries: importing, exporting and ejecting."""
