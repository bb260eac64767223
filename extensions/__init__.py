"""Tasks and tools built on the core: parsing, studies, exports and imports, editors, servers."""
