"""The commands `weft study` and `weft compare`."""
