"""Origins: for each part of a merged value, the file and the place where it was written."""

from __future__ import annotations

from collections.abc import Iterable

from .findings import pointer

Place = tuple[str, str]
"""A file, and the JSON Pointer in it."""


def parts_of(at: str) -> tuple[str, ...]:
    """Return the keys that a JSON Pointer goes through.

    >>> parts_of("/nodes/a~1b")
    ('nodes', 'a/b')
    """
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in at.split("/")[1:])


class Origins:
    """A sparse tree beside a value: where its parts were written.

    What has no place of its own lies where the record that holds it lies.
    """

    __slots__ = ("inner", "place")

    def __init__(self, place: Place | None = None) -> None:
        """Start with one place for everything, or none."""
        self.place = place
        self.inner: dict[str, Origins] = {}

    def of(self, path: Iterable[str]) -> Place:
        """Return file and pointer of what a path of keys leads to."""
        here: Origins | None = self
        (file, base), rest = self.place or ("", ""), list[str]()
        for part in path:
            rest.append(part)
            here = here.inner.get(part) if here else None
            if here is not None and here.place is not None:
                (file, base), rest = here.place, []
        return file, base + pointer(*rest)

    def at(self, path: Iterable[str]) -> Origins:
        """Return the tree below a path, making it where there is none."""
        here = self
        for part in path:
            here = here.inner.setdefault(part, Origins())
        return here

    def put(self, path: Iterable[str], place: Place) -> None:
        """Note that all that lies below a path was written at a place."""
        tree = self.at(path)
        tree.place = place
        tree.inner.clear()

    def pin(self, path: tuple[str, ...], keys: Iterable[str], place: Place) -> None:
        """Note that a record was written at a place, while some of its keys stay where they are."""
        tree = self.at(path)
        for key in keys:
            tree.at((key,)).place = self.of((*path, key))
        tree.place = place

    def copied(self, path: tuple[str, ...]) -> Origins:
        """Return a tree for a copy of what lies below a path."""
        found: Origins | None = self
        for part in path:
            found = found.inner.get(part) if found else None
        tree = found.twin() if found else Origins()
        tree.place = self.of(path)
        return tree

    def twin(self) -> Origins:
        """Return a copy that can be changed by itself."""
        tree = Origins(self.place)
        tree.inner = {key: inner.twin() for key, inner in self.inner.items()}
        return tree
