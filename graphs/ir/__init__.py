"""The intermediate representation: value types, block types, graphs, and their canonical form."""
