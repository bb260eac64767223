"""Shipped blocks pass the validation of plug-ins, which is skipped when they are used."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import weft
from weft.blocks import registry as blocks
from weft.blocks.registry import standard
from weft.graphs.checker.check import check
from weft.graphs.contract import refuse_wrong_contract
from weft.graphs.ir.block_type import BlockType
from weft.runtime.codegen import build as building
from weft.runtime.codegen import generated
from weft.runtime.codegen.build import build
from weft.specs.findings import InputError, SpecError
from weft.specs.load import loaded

pytestmark = pytest.mark.exact

EVERY_BLOCK = pytest.mark.parametrize("block", standard(), ids=[one.key for one in standard()])


@EVERY_BLOCK
def test_a_shipped_block_is_declared_right(block: BlockType) -> None:
    """Name, params, ports, weights, costs and limits."""
    refuse_wrong_contract(block, "weft")


@pytest.mark.parametrize(
    "block", [b for b in standard() if not b.fills and b.module], ids=lambda b: b.key
)
def test_the_module_of_a_shipped_block_fits(
    block: BlockType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Constructor, weights, forward, and begin and step where the block can decode."""
    for module in (generated, building):
        monkeypatch.setattr(module, "shipped", lambda _: False)
    inputs = dict(block.example_inputs)
    axes = sorted(set(re.findall(r"\b[A-Z]\w*", " ".join(inputs.values()))))
    made = block.signature(block.params(**block.example), frozenset(inputs))
    node = {
        "use": block.key,
        "params": dict(block.example),
        "fill": dict(block.example_fill),
        "in": {name: name for name in inputs},
    }
    spec: dict[str, Any] = {
        "format": 1,
        "name": f"validated {block.name}".replace(" ", "_"),
        "axes": {axis: "batch" if axis == "B" else "time" for axis in axes},
        "inputs": inputs,
        "outputs": {p.name: f"node.{p.name}" for p in made.outputs if not p.optional},
        "nodes": {"node": node},
    }
    try:
        graph = check(loaded({**spec, "step": {"axis": "T"}}).form, blocks.registry(), checked=True)
    except SpecError:
        graph = check(loaded(spec).form, blocks.registry(), checked=True)

    assert generated.plug_ins(graph)
    build(graph)


def install(folder: Path, entry: str, code: str = "") -> None:
    """Write a package with metadata and an entry point, as pip does."""
    about = folder / "own_blocks-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: own-blocks\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[weft.blocks]\nown = {entry}\n")
    (folder / "own_blocks_of_this_test.py").write_text(code)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the function that writes a package which is then on the path."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_blocks_of_this_test", raising=False)
    blocks.installed.cache_clear()
    yield lambda *given: install(tmp_path, *given)
    blocks.installed.cache_clear()
    sys.modules.pop("own_blocks_of_this_test", None)


DECLARED = """
from weft import BlockType, Signature, port
OWN = BlockType(name={name!r}, doc="A block.", source="this test", module="torch.nn:Identity",
    signature=lambda params, wired: Signature((port("x", "f[...]"),), (port("y", {y!r}),)))
"""
PLACE = "package own-blocks, entry point own"


@pytest.mark.parametrize(
    ("entry", "code", "place", "problem", "help_"),
    [
        ("no_such_package:OWN", "", PLACE, "ModuleNotFoundError", "pip uninstall own-blocks"),
        ("own_blocks_of_this_test:OWN", "", PLACE, "AttributeError", "pip uninstall own-blocks"),
        ("own_blocks_of_this_test:OWN", "OWN = 1/0", PLACE, "ZeroDivisionError", "uninstall"),
        ("own_blocks_of_this_test:OWN", "OWN = 3", PLACE, "3 is not a BlockType", "declares"),
        (
            "own_blocks_of_this_test:OWN",
            DECLARED.format(name="linear", y="f[...]"),
            PLACE,
            "'linear@1' already exists, from weft",
            "another name or major",
        ),
        (
            "own_blocks_of_this_test:OWN",
            DECLARED.format(name="own", y="f[... d]"),
            f"{PLACE}: block 'own@1', member 'signature'",
            "no wired input binds 'd'",
            "same=",
        ),
    ],
)
def test_a_wrong_package_is_named(
    installed: Any, entry: str, code: str, place: str, problem: str, help_: str
) -> None:
    """The message names the package and the entry point, and how to go on without it."""
    installed(entry, code)

    with pytest.raises(InputError) as caught:
        weft.check("transformer-tiny")

    assert caught.value.location == place
    assert problem in caught.value.problem
    assert help_ in caught.value.help


def test_a_right_package_is_loaded_once(installed: Any) -> None:
    """Its block is in the registry, next to the shipped ones."""
    installed("own_blocks_of_this_test:OWN", DECLARED.format(name="own", y="f[...]"))

    first = blocks.registry().get("own@1")

    assert first is not None
    assert blocks.registry().get("own@1") is first


@pytest.mark.integration
def test_shipped_blocks_cost_nothing_when_weft_starts() -> None:
    """Without plug-ins, the module that validates them is not imported."""
    code = (
        "import sys, weft; assert weft.check('transformer-tiny') == []\n"
        "sys.exit(any('weft.graphs.ir.' + one in sys.modules for one in ('contract', 'formulas')))"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
