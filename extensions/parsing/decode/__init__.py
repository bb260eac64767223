"""Decoding of parsers: CKY, the tree automaton, and repair of malformed trees."""
