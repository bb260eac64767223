"""Opening: a stranger's file runs nothing, imports nothing, and reads no file but specs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from weft.specs.reader import SHIPPED

WATCH = """
import json, sys
from weft.blocks.registry import registry
from weft.graphs.ir.canonical import fingerprint
from weft.graphs.checker.check import analyse
from weft.specs.findings import InputError
from weft.specs.load import load

def run(name):
    try:
        held = load(name)
        graph, findings = analyse(held.form, registry(), held.overrides, source=held.source)
        return [f.code for f in findings] if graph is None else [fingerprint(graph)]
    except InputError as error:
        return [getattr(finding, "code", "") for finding in getattr(error, "findings", [])]

for name in json.loads(sys.argv[2]):
    run(name)  # what Python itself reads at the first call of a function is not the file's doing
seen, told = [], []
sys.addaudithook(lambda event, args: seen.append((event, repr(args[0]) if args else "")))
for name in json.loads(sys.argv[1]):
    seen.clear()
    found = run(name)
    told.append((found, list(seen)))
print(json.dumps(told))
"""
"""Opens the files of one list, then those of another under watch; prints what it saw."""

QUIET = ("builtins.id", "os.listdir", "os.scandir", "glob.", "pathlib.Path.glob")
"""Events that neither run anything nor read a file: identities, and looks into folders."""

Seen = tuple[list[str], set[str], list[str]]
"""Codes found or the fingerprint, files that were opened, and all else that happened."""


def watched(*paths: Path, warm: tuple[str, ...] = ("transformer-tiny",)) -> list[Seen]:
    """Open files in a process of its own, and return what was seen at each.

    Args:
        paths: the files.
        warm: names that are opened before anybody watches.
    """
    names = json.dumps([str(path) for path in paths])
    done = subprocess.run(
        [sys.executable, "-c", WATCH, names, json.dumps(warm)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return [
        (
            found,
            {args.strip("'") for event, args in events if event == "open"},
            [f"{e} {a}" for e, a in events if e != "open" and not e.startswith(QUIET)],
        )
        for found, events in json.loads(done.stdout)
    ]


def write(path: Path, value: Any) -> Path:
    """Write a spec."""
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


BASE = SHIPPED / "models" / "transformer-base.json"


def test_a_sound_child_reads_itself_and_its_parents_alone(tmp_path: Path) -> None:
    """One beside, one shipped."""
    middle = {"format": 2, "extends": "transformer-base", "name": "middle", "params": {"layers": 2}}
    parent = write(tmp_path / "middle.json", middle)
    child = write(tmp_path / "child.json", {"format": 2, "extends": "middle", "name": "child"})

    [(found, files, rest)] = watched(child)

    assert len(found[0]) == 64
    assert files == {str(child), str(parent), str(BASE)}
    assert rest == []


HOSTILE = {
    "a path as a parent": {"format": 2, "name": "x", "extends": "../../etc/passwd"},
    "a root as a parent": {"format": 2, "name": "x", "extends": "/etc/passwd"},
    "a link as a parent": {"format": 2, "name": "x", "extends": "link"},
    "a run as a parent": {"format": 2, "name": "x", "extends": "demo"},
    "code as a block": {"nodes": {"a": {"use": "os.system", "in": {"x": "x"}}}},
    "a module as a block": {"nodes": {"a": {"use": "weft.runtime.cli.main:main"}}},
    "a dunder as a block": {"nodes": {"a": {"use": "__import__"}}},
    "a dunder as a value": {"outputs": {"y": "x.__class__"}},
    "code as an expression": {"params": {"p": "=__import__('os').system('true')"}},
    "a call as an expression": {"params": {"p": "=open(1)"}},
    "code as a type": {"inputs": {"x": "f[B {x.__class__}]"}},
    "code as a requirement": {"require": ["exec('1') == 1"]},
    "a template of text": {"doc": "{0.__class__} %s ${HOME} `id`", "nodes": {"a": {"use": "{}@1"}}},
    "a path as a name": {"name": "../../../tmp/x"},
    "a path as a weight": {"tie": [["../../etc/passwd", "/etc/shadow"]]},
    "a schema elsewhere": {"$schema": "http://127.0.0.1:9/schema.json"},
}
HARMLESS = ("a schema elsewhere",)
"""What is allowed, and means nothing."""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Seen]]:
    """Return each hostile file and what was seen when it was opened."""
    sound = {
        "format": 2,
        "name": "sound",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": "f[B T 8]"},
        "outputs": {"y": "x"},
        "nodes": {},
    }
    folder = tmp_path_factory.mktemp("room")
    secret = write(tmp_path_factory.mktemp("elsewhere") / "secret.json", sound)
    (folder / "link.json").symlink_to(secret)
    paths = {
        name: write(folder / f"spec{i}.json", own if "extends" in own else {**sound, **own})
        for i, (name, own) in enumerate(HOSTILE.items())
    }
    everything = watched(*paths.values(), warm=("transformer-tiny", str(folder / "spec0.json")))
    return {name: (paths[name], all_) for name, all_ in zip(HOSTILE, everything, strict=True)}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_reads_nothing_but_itself(
    name: str, seen: dict[str, tuple[Path, Seen]]
) -> None:
    """Neither a path outside the roots nor a word that means something to Python does anything."""
    path, (found, files, rest) = seen[name]

    assert len(found[0]) == (64 if name in HARMLESS else 3)
    assert files == {str(path)}
    assert rest == []


def test_the_watch_sees_what_it_must(tmp_path: Path) -> None:
    """Were a block imported or a file opened, the tests above would say so."""
    code = WATCH.replace(
        "    try:\n", "    if 'bad' in name: import this; open('/dev/null').close()\n    try:\n"
    )
    spec = write(tmp_path / "bad.json", {})
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps([str(spec)]), "[]"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    [[_, events]] = json.loads(done.stdout.splitlines()[-1])

    assert ["open", "'/dev/null'"] in events
    assert ["import", "'this'"] in events
