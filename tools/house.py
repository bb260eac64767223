"""Measure the code base: lines, folders, imports between rooms, and names that say nothing.

Used as `python tools/house.py`; `--json` prints the figures for comparison with another commit,
`--names` refuses names that say nothing and classes of one name, as `make lint` does, and
`tools/journeys.py` counts the files of journeys.  A room is a folder below a floor, such as
`runtime/train`; an arrow is an import of one room by another.  A name is bound where it is
assigned, also as an attribute of `self`, is an argument, or names a function or class.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
FLOORS = ("specs", "graphs", "blocks", "runtime")
EXTENSIONS = "extensions"
FILLERS = frozenset(
    (
        *("both", "each", "found", "given", "held", "here", "kept", "known", "left", "made"),
        *("meant", "named", "one", "own", "place", "plain", "rest", "said", "seen", "told"),
        *("wanted", "whole"),
    )
)
"""Names that say nothing of what they hold; the words of the field do."""
ALLOWED = frozenset(
    (
        ("blocks/losses/tree_crf_module.py", "known"),
        ("specs/load.py", "place"),
        ("runtime/compile/torch_compile.py", "found"),
        ("runtime/decode/shortlist/table.py", "made"),
        ("extensions/serve/forms.py", "place"),
    )
)
"""File and name: a port of a shipped block, keys of JSON, and names that are public."""


TWINS = frozenset(("Dropout", "LinearMap", "MeanSquaredError"))
"""Classes that may share a name: exports write modules under the names of blocks' modules, and a
loss has a metric of its name."""


@dataclass(slots=True)
class House:
    """Figures of a code base."""

    lines: dict[str, int] = field(default_factory=dict)
    """Lines of Python of each floor and each extension."""
    files: int = 0
    folders: int = 0
    rooms: int = 0
    arrows: int = 0
    """Pairs of rooms, the first of which imports the second."""
    names: int = 0
    """Bindings of names."""
    fillers: dict[str, int] = field(default_factory=dict)
    """Filler to its bindings, the most frequent first."""

    @property
    def core(self) -> int:
        """Lines of all floors."""
        return sum(count for name, count in self.lines.items() if name in FLOORS)

    @property
    def filler_share(self) -> float:
        """Fraction of the bindings whose name is a filler."""
        return sum(self.fillers.values()) / self.names if self.names else 0.0


def measured(root: Path = ROOT) -> House:
    """Return the figures of the code in a folder.

    Args:
        root: the root of a checkout, which is the package.
    """
    paths = [path for floor in (*FLOORS, EXTENSIONS) for path in (root / floor).rglob("*.py")]
    house, lines, bound = House(files=len(paths)), Counter[str](), Counter[str]()
    arrows: set[tuple[str, str]] = set()
    for path in sorted(paths):
        parts = path.relative_to(root).parts
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        lines["/".join(parts[:2]) if parts[0] == EXTENSIONS else parts[0]] += text.count("\n")
        bound.update(name for name, _ in bindings(tree))
        rooms = {room_of(target) for target in imports(tree, parts)} - {"", room_of(parts)}
        arrows |= {(room_of(parts), room) for room in rooms}
    parents = {path.relative_to(root).parts[:-1] for path in paths}
    house.lines = dict(lines)
    house.folders, house.rooms = (
        len(parents),
        len({room_of((*parent, "x.py")) for parent in parents}),
    )
    house.arrows, house.names = len(arrows), bound.total()
    house.fillers = {name: count for name, count in bound.most_common() if name in FILLERS}
    return house


def room_of(parts: tuple[str, ...]) -> str:
    """Return the room of a file or module: `runtime/train` for `runtime/train/run.py`."""
    if not parts or parts[0] not in (*FLOORS, EXTENSIONS):
        return ""
    return "/".join(parts[:2]) if len(parts) > 2 else parts[0]  # noqa: PLR2004 - floor, room, file


def imports(tree: ast.Module, parts: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the parts of the modules that a file imports relatively, as paths of files."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            below = parts[: -node.level]
            module = (*below, *(node.module.split(".") if node.module else ()))
            yield module if node.module else (*module, node.names[0].name)


def bindings(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield each name that a file binds, as often as it does, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if isinstance(node.value, ast.Name) and node.value.id == "self":
                yield node.attr, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node.lineno


def fillers(root: Path = ROOT) -> Iterator[str]:
    """Yield `file:line: name` of each binding of a filler that is not allowed, also in tools/."""
    for folder in (*FLOORS, EXTENSIONS, "tools"):
        for path in sorted((root / folder).rglob("*.py")):
            file = path.relative_to(root).as_posix()
            for name, line in bindings(ast.parse(path.read_text(encoding="utf-8"))):
                if name in FILLERS and (file, name) not in ALLOWED:
                    yield f"{file}:{line}: {name}"


def twins(root: Path = ROOT) -> Iterator[str]:
    """Yield `file:line: name` of each public class whose name an earlier file has for another."""
    homes: dict[str, str] = {}
    for folder in (*FLOORS, EXTENSIONS):
        for path in sorted((root / folder).rglob("*.py")):
            file = path.relative_to(root).as_posix()
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if not isinstance(node, ast.ClassDef) or node.name.startswith("_"):
                    continue
                if homes.setdefault(node.name, file) != file and node.name not in TWINS:
                    yield f"{file}:{node.lineno}: {node.name}, as in {homes[node.name]}"


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description="Measure the code base.")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--root", type=Path, default=ROOT, help="root of another checkout")
    parser.add_argument(
        "--names", action="store_true", help="refuse names that say nothing or are taken"
    )
    options = parser.parse_args()
    if options.names:
        refused = [*fillers(options.root), *twins(options.root)]
        if refused:
            print(*refused, sep="\n")
            sys.exit("name what the value or the class is, in the words of the field")
        return
    house = measured(options.root)
    if options.json:
        print(json.dumps(asdict(house), indent=2))
        return
    for name, count in house.lines.items():
        print(f"{name:20} {count:8,} lines")
    print(f"{'core':20} {house.core:8,} lines")
    print(f"{house.files:,} files in {house.folders} folders")
    print(f"{house.rooms} rooms with {house.arrows} arrows")
    print(f"{100 * house.filler_share:.2f} % of {house.names:,} names say nothing:")
    print("  " + ", ".join(f"{name} {count}" for name, count in house.fillers.items()))


if __name__ == "__main__":
    main()
