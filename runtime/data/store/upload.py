"""Upload of prepared data: its objects, and then the manifest that makes them prepared data."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from ....specs.findings import InputError
from .manifest import PIECE, PreparedManifest, manifest_name, object_name
from .stores import Store

THREADS = 4
"""Objects that are transferred at the same time."""
MIB = 1 << 20
Tell = Callable[[str, int, int | None], None]
"""Called with `upload` or `fetch`, the MiB done, and the MiB in total."""
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def refuse_unwritable(store: Store) -> None:
    """Write the object without content, to fail before hours of preparation.

    Raises:
        InputError: nothing can be written there.
    """
    store.write(object_name(hashlib.sha256().hexdigest()), b"")


def upload(files: Mapping[str, Path], store: Store, tell: Tell, **facts: Any) -> str:
    """Write prepared data to a store, and return the SHA-256 of its manifest.

    Objects that are there already are not written again, so an upload that was interrupted goes on.

    Args:
        files: path of each file, by its name in a prepared folder.
        store: the store.
        tell: called with the progress.
        facts: other fields of the manifest.

    Raises:
        InputError: a file cannot be read, or the store cannot be reached or written.
    """
    _with_pieces(facts, {name: [] for name in files}, store)  # fail before anything is written
    sizes = {name: _size(path) for name, path in files.items()}
    total = sum(sizes.values())
    parts = [(name, start) for name in sorted(files) for start in range(0, sizes[name], PIECE)]

    def stored(part: tuple[str, int]) -> tuple[str, tuple[str, int]]:
        name, start = part
        content = _read(files[name], start)
        digest = hashlib.sha256(content).hexdigest()
        if not store.has(object_name(digest), len(content)):
            store.write(object_name(digest), content)
        return name, (digest, len(content))

    pieces: dict[str, list[tuple[str, int]]] = {name: [] for name in sorted(files)}
    done = 0
    for name, piece in in_threads(stored, parts):
        pieces[name].append(piece)
        done += piece[1]
        tell("upload", done // MIB, total // MIB)
    content = _with_pieces(facts, pieces, store).content()
    digest = hashlib.sha256(content).hexdigest()
    store.write(manifest_name(digest), content)
    return digest


def _with_pieces(
    facts: Mapping[str, Any], pieces: Mapping[str, list[tuple[str, int]]], store: Store
) -> PreparedManifest:
    """Return a manifest.

    Raises:
        InputError: the name of a file cannot be in one.
    """
    try:
        return PreparedManifest(
            **facts, files={name: tuple(listed) for name, listed in pieces.items()}
        )
    except ValidationError as error:
        *_, name = ("", *(str(key) for key in error.errors()[0]["loc"] if key in pieces))
        raise InputError(
            f"the file {name!r} cannot be uploaded with prepared data",
            location=store.address,
            help="name it in the run as a path below data.root without '..'",
        ) from error


def in_threads(work: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[_Result]:
    """Yield the result of each item in order, computed in threads; an error ends the others."""
    pool = ThreadPoolExecutor(THREADS)
    try:
        yield from pool.map(work, items)
    finally:
        pool.shutdown(cancel_futures=True)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise _unread(path, error) from error


def _read(path: Path, start: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(start)
            return file.read(PIECE)
    except OSError as error:
        raise _unread(path, error) from error


def _unread(path: Path, error: OSError) -> InputError:
    return InputError(f"cannot read the file: {error.strerror}", location=str(path))
