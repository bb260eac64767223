"""Tests that opening an untrusted file executes nothing and reads only specs."""

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
        spec = load(name)
        graph, findings = analyse(spec.form, registry(), spec.overrides, source=spec.source)
        return [f.code for f in findings] if graph is None else [fingerprint(graph)]
    except InputError as error:
        return [getattr(finding, "code", "") for finding in getattr(error, "findings", [])]

for name in json.loads(sys.argv[2]):
    run(name)  # first calls make Python itself read files
seen, results = [], []
sys.addaudithook(lambda event, args: seen.append((event, repr(args[0]) if args else "")))
for name in json.loads(sys.argv[1]):
    seen.clear()
    found = run(name)
    results.append((found, list(seen)))
print(json.dumps(results))
"""
"""Opens the files of one list, then observes opening those of another; prints the events."""

QUIET = ("builtins.id", "os.listdir", "os.scandir", "glob.", "pathlib.Path.glob", "sys._getframe")
"""Harmless events: object identities, directory listings, and frames, which name modules."""

Seen = tuple[list[str], set[str], list[str]]
"""Finding codes or the fingerprint, the opened files, and all other events."""


def watched(*paths: Path, warm: tuple[str, ...] = ("transformer-tiny",)) -> list[Seen]:
    """Open files in a separate process, and return the observed events for each.

    Args:
        paths: the files.
        warm: names that are opened before observation starts.
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


@pytest.mark.integration
def test_a_valid_child_reads_only_itself_and_its_parents(tmp_path: Path) -> None:
    """One parent in the same folder, one shipped."""
    middle = {"format": 1, "extends": "transformer-base", "name": "middle", "params": {"layers": 2}}
    parent = write(tmp_path / "middle.json", middle)
    child = write(tmp_path / "child.json", {"format": 1, "extends": "middle", "name": "child"})

    [(found, files, rest)] = watched(child)

    assert len(found[0]) == 64
    assert files == {str(child), str(parent), str(BASE)}
    assert rest == []


HOSTILE = {
    "a path as a parent": {"format": 1, "name": "x", "extends": "../../etc/passwd"},
    "a root as a parent": {"format": 1, "name": "x", "extends": "/etc/passwd"},
    "a link as a parent": {"format": 1, "name": "x", "extends": "link"},
    "a run as a parent": {"format": 1, "name": "x", "extends": "demo"},
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
"""Cases that are allowed and have no effect."""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Seen]]:
    """Return each hostile file and the events observed when it was opened."""
    sound = {
        "format": 1,
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


@pytest.mark.integration
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_reads_nothing_but_itself(
    name: str, seen: dict[str, tuple[Path, Seen]]
) -> None:
    """Neither paths nor Python names in a file have any effect."""
    path, (found, files, rest) = seen[name]

    assert len(found[0]) == (64 if name in HARMLESS else 3)
    assert files == {str(path)}
    assert rest == []


@pytest.mark.integration
def test_the_observation_detects_imports_and_files(tmp_path: Path) -> None:
    """The observation detects an import and an opened file."""
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
