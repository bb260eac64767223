"""The commands `weft lsp` and `weft studio`."""
