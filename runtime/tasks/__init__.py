"""Tasks: losses, validation and decoding for translation, mask-predict and parsing."""
