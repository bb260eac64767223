"""Record the file and the place where each part of a merged spec was written."""

from __future__ import annotations

from collections.abc import Iterable

from .findings import pointer

Place = tuple[str, str]
"""A file and a JSON Pointer in it."""


class Origins:
    """A sparse tree with the places where the parts of a value were written.

    A part without its own place has the place of the record that contains it.
    """

    __slots__ = ("inner", "place")

    def __init__(self, location: Place | None = None) -> None:
        """Create a tree with one place for the complete value, or none."""
        self.place = location
        self.inner: dict[str, Origins] = {}

    def of(self, path: Iterable[str]) -> Place:
        """Return the file and the pointer of the value at a path of keys."""
        origin: Origins | None = self
        (file, base), remaining = self.place or ("", ""), list[str]()
        for part in path:
            remaining.append(part)
            origin = origin.inner.get(part) if origin else None
            if origin is not None and origin.place is not None:
                (file, base), remaining = origin.place, []
        return file, base + pointer(*remaining)

    def at(self, path: Iterable[str]) -> Origins:
        """Return the subtree at a path, creating it if necessary."""
        tree = self
        for part in path:
            tree = tree.inner.setdefault(part, Origins())
        return tree

    def put(self, path: Iterable[str], location: Place) -> None:
        """Record that the complete value at a path was written at a place."""
        tree = self.at(path)
        tree.place = location
        tree.inner.clear()

    def pin(self, path: tuple[str, ...], keys: Iterable[str], location: Place) -> None:
        """Record that a record was written at a place; `keys` keep their own places."""
        tree = self.at(path)
        for key in keys:
            tree.at((key,)).place = self.of((*path, key))
        tree.place = location

    def copied(self, path: tuple[str, ...]) -> Origins:
        """Return the tree for a copy of the value at a path."""
        source: Origins | None = self
        for part in path:
            source = source.inner.get(part) if source else None
        tree = source.twin() if source else Origins()
        tree.place = self.of(path)
        return tree

    def twin(self) -> Origins:
        """Return an independent copy."""
        tree = Origins(self.place)
        tree.inner = {key: inner.twin() for key, inner in self.inner.items()}
        return tree
