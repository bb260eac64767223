"""One line about each metric, predictor, tracker and reader, shipped or installed.

The shipped ones are described without importing them, because some import torch.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from ...blocks.entry_points import package_of, points_of


def shipped_lines(shipped: Mapping[str, str], package: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the description of each shipped implementation of a contract.

    Args:
        shipped: name to `file:Class`, relative to `package`.
        package: package that contains the files.
    """
    for name, target in shipped.items():
        file, _, attribute = target.partition(":")
        yield name, _classes(file, package).get(attribute, "")


def installed_lines(group: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the description of each implementation that an installed package adds.

    One that cannot be imported is described by its error.

    Args:
        group: entry-point group, such as `weft.metrics`.
    """
    for point in points_of(group):
        try:
            text = _sentence(point.load().__doc__)
        except Exception as error:  # noqa: BLE001 - the list shows what a plug-in raises
            first = str(error).partition("\n")[0]
            text = f"cannot be imported: {type(error).__name__}: {first:.200}"
        package = package_of(point)
        yield point.name, text if package == "weft" else f"{text} (from {package})"


@functools.cache
def _classes(file: str, package: str) -> dict[str, str]:
    """Return the first line about each class of a file."""
    spec = find_spec(file, package)
    if spec is None or spec.origin is None:
        return {}
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    return {
        node.name: _sentence(ast.get_docstring(node))
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }


def _sentence(doc: str | None) -> str:
    """Return the first sentence of the first line of a docstring, without its full stop."""
    return (doc or "").strip().partition("\n")[0].partition(".  ")[0].rstrip(".")
