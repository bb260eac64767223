"""Worst cases: no file up to the size limit takes long, or 200 MB for the process."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from weft.specs.json_tree import DEEPEST
from weft.specs.reader import LARGEST, MOST_WRITTEN

pytestmark = pytest.mark.slow  # ten seconds, mostly for the longest files

RUN = """
import json, sys, time
from pathlib import Path
from weft.blocks.registry import registry
from weft.graphs.checker.check import analyse
from weft.specs.findings import InputError
from weft.specs.load import load

def run(name):
    try:
        spec = load(name)
        found = analyse(spec.recovered, registry(), spec.overrides, lost=spec.lost)[1]
        return [f.code for f in [*spec.mistakes, *found]]
    except InputError as error:
        return [f.code for f in getattr(error, "findings", ())] or [type(error).__name__]

def timed(path):
    best = float("inf")
    for _ in range(3):  # a busy machine rarely slows all three
        start = time.process_time()
        codes = run(path)
        best = min(best, time.process_time() - start)
        if best < usual:
            break
    return codes, best

usual = 0
run("transformer-tiny")
usual = timed(sys.argv[1])[1]
results = {}
for path in sys.argv[2:]:
    codes, seconds = timed(path)
    results[path] = [codes, seconds / usual]
status = Path("/proc/self/status")  # the system's own figure would include the parent's memory
lines = status.read_text().splitlines() if status.exists() else []
print(json.dumps([results, *[int(line.split()[1]) for line in lines if line.startswith("VmHWM")]]))
"""
"""Opens files one after another; prints codes of each but the first, its time in that of the first,
and the peak memory."""

MOST_TIME = 20
"""Maximum time of a file in that of the largest valid chain of nodes: half a second to two."""
MOST_KILOBYTES = 200 * 1024
NORM = {"inputs": {"x": "f[B T 8]"}, "outputs": {"x": "a.y"}}
LAYER = {**NORM, "nodes": {"a": {"use": "layer_norm@1", "in": {"x": "x"}}}}
FULL = MOST_WRITTEN - 10


def spec(**parts: Any) -> dict[str, Any]:
    """Return a small valid spec with changed parts."""
    return {
        "format": 1,
        "name": "worst",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": "f[B T 8]"},
        "outputs": {"y": "x"},
        "nodes": {},
        **parts,
    }


def chain(use: dict[str, Any], count: int = FULL, name: str = "n") -> dict[str, Any]:
    """Return a spec whose nodes form a chain."""
    names = [f"{name}{i}" for i in range(count)]
    reads = ["x", *(f"{key}.y" for key in names)]
    nodes = {key: {**use, "in": {"x": reads[i]}} for i, key in enumerate(names)}
    return spec(nodes=nodes, outputs={"y": reads[-1]})


def nested(depth: int, count: int) -> dict[str, Any]:
    """Return a spec of nested repeats."""
    blocks: dict[str, Any] = {"t0": LAYER}
    for i in range(1, depth):
        node = {"repeat": count, "block": f"t{i - 1}", "carry": ["x"], "in": {"x": "x"}}
        blocks[f"t{i}"] = {**NORM, "outputs": {"x": "a.x"}, "nodes": {"a": node}}
    use = {"use": f"t{depth - 1}", "in": {"x": "x"}}
    return spec(blocks=blocks, nodes={"a": use}, outputs={"y": "a.x"})


def repeat(count: Any, **parts: Any) -> dict[str, Any]:
    """Return a spec with one repeat."""
    node = {"repeat": count, "block": "t", "carry": ["x"], "in": {"x": "x"}, **parts}
    return spec(blocks={"t": LAYER}, nodes={"a": node}, outputs={"y": "a.x"})


def differing(depth: int, count: int, inner: str = "=i / 20000") -> dict[str, Any]:
    """Return a spec of nested repeats whose copies differ by their number."""
    norm = {"use": "dropout@1", "in": {"x": "x"}, "params": {"dropout": "=p"}}
    blocks: dict[str, Any] = {"t0": {**NORM, "params": {"p": 0}, "nodes": {"a": norm}}}
    copies = {"repeat": count, "index": "i", "carry": ["x"], "in": {"x": "x"}}
    for i in range(1, depth):
        node = {**copies, "block": f"t{i - 1}", "params": {"p": inner if i == 1 else "=p"}}
        blocks[f"t{i}"] = {
            **NORM,
            "params": {"p": 0},
            "outputs": {"x": "b.y"},
            "nodes": {"a": node, "b": {**norm, "in": {"x": "a.x"}}},
        }
    node = {**copies, "block": f"t{depth - 1}", "params": {"p": "=i / 20000"}}
    return spec(blocks=blocks, nodes={"a": node}, outputs={"y": "a.x"})


def doubling(depth: int) -> dict[str, Any]:
    """Return a spec in which each template uses the next one twice."""
    blocks: dict[str, Any] = {"t0": LAYER}
    for i in range(1, depth):
        nodes = {"a": {"use": f"t{i - 1}", "in": {"x": "x"}}}
        nodes["b"] = {"use": f"t{i - 1}", "in": {"x": "a.x"}}
        blocks[f"t{i}"] = {**NORM, "outputs": {"x": "b.x"}, "nodes": nodes}
    use = {"use": f"t{depth - 1}", "in": {"x": "x"}}
    return spec(blocks=blocks, nodes={"a": use}, outputs={"y": "a.x"})


def many(count: int, text: str) -> dict[str, Any]:
    """Return `count` names with the same value."""
    return {f"k{i}": text.replace("#", str(i)) for i in range(count)}


def child(*patch: dict[str, Any], **keys: Any) -> dict[str, Any]:
    """Return a child of a spec with the maximum number of nodes."""
    return {"format": 1, "name": "c", "extends": "big", "patch": list(patch), **keys}


def inserted(name: str) -> dict[str, Any]:
    """Return a patch that inserts a node after every other node."""
    return {"select": "**", "insert_after": {name: {"use": "layer_norm@1", "in": {"x": "@"}}}}


NORMED = {"use": "layer_norm@1"}
LINEAR = {"use": "linear@1", "params": {"d_out": 8}}
AXES = "f[" + "1 " * 480 + "8]"
LONG = "a" * 58
MISSPELLED = {f"{LONG}{i}": {**NORMED, "in": {"x": f"{LONG}Z{i}.y"}} for i in range(FULL)}
READERS = {key: {**NORMED, "in": {"x": "x"}, "params": {"eps": "=p"}} for key in many(900, "")}
OPEN = {"inputs": many(900, "f[B T 1#]"), "outputs": {"x": "k0"}, "nodes": {}}
CYCLE = {**chain(NORMED)["nodes"], "n0": {**NORMED, "in": {"x": "n9.y"}}}
WIDE = chain(NORMED, 480)["nodes"]
GENERIC = spec(
    blocks={"t": {"inputs": {"x": "f[... d]"}, "outputs": {"x": "n479.y"}, "nodes": WIDE}},
    nodes={
        **{
            f"l{i}": {"use": "linear@1", "params": {"d_out": i + 1}, "in": {"x": f"t{i - 1}.x"}}
            for i in range(1, 200)
        },
        **{f"t{i}": {"use": "t", "in": {"x": f"l{i}.y" if i else "x"}} for i in range(200)},
    },
    outputs={"y": "t199.x"},
)
UNKNOWN = {"heads": "=p", "d_k": "=p", "bias": "=p", "position": "=p", "window": "=p"}
ATTENTION = {"use": "attention@1", "params": UNKNOWN}
TIES = [[f"n{i}.weight", f"n{i}.bias"] for i in range(FULL)]
WRONG_TIES = [[f"n{i}.wei", f"n{i}.bia"] for i in range(FULL)]
PORTS = [f"p{i}" for i in range(199)]
CASES: dict[str, tuple[Any, str]] = {
    "nodes in a row": (chain(LINEAR), ""),
    "nodes that nothing reads": (spec(nodes=dict.fromkeys(many(FULL, ""), LINEAR)), "W01"),
    "nodes in a cycle": (spec(nodes=CYCLE), "W02"),
    "too many nodes": (chain(NORMED, 5_000), "S09"),
    "long names, all misspelled": (spec(nodes=MISSPELLED), "N02"),
    "types of many axes": ({**chain(NORMED), "inputs": {"x": AXES}}, ""),
    "inputs of many axes": (spec(inputs=many(370, AXES[:900] + "]")), "N02"),
    "expressions as axes": (spec(inputs=many(370, "f[" + "(1) " * 240 + "]")), "N02"),
    "long expressions": (spec(params={"d": 0} | many(990, "=" + "*".join(["(d+1)"] * 33))), "W08"),
    "params in a row": (
        spec(params={"k": 1} | {f"k{i}": f"=k{i - 1}" for i in range(1, 900)}),
        "E02",
    ),
    "params in circles": (spec(params={f"k{i}": f"=k{i}" for i in range(990)}), "E04"),
    "towers of exponents": (spec(params=many(990, "=9**9**9**9")), "E01"),
    "an endless expression": (spec(params={"d": "=" + "1+" * 100_000 + "1"}), "S10"),
    "nodes that cannot be read": (
        spec(nodes=chain(NORMED, 700)["nodes"] | {f"w{i}": {"use": i} for i in range(199)}),
        "S04",
    ),
    "wires that cannot be read": (
        spec(
            nodes=chain(NORMED, 700)["nodes"]
            | {"w": {**NORMED, "in": {f"p{i}": i for i in range(199)}}}
        ),
        "S04",
    ),
    "an endless name": (spec(name="a" * 300_000), "S10"),
    "an endless type": (spec(inputs={"x": "f[" + "B " * 100_000 + "]"}), "S10"),
    "a list without end": (spec(params={"p": [0] * 100_000}), "S11"),
    "a long list that all read": (spec(params={"p": [0] * 900}, nodes=READERS), "P01"),
    "wires without end": (spec(nodes={"a": {**NORMED, "in": many(990, "x")}}), "N03"),
    "ports that are not wired": (spec(blocks={"t": OPEN}, nodes={"a": {"use": "t"}}), "W01"),
    "a thousand million layers": (repeat(10**9), "P05"),
    "ten thousand layers": (repeat(10_000), ""),
    "copies that are others": (repeat(10_000, instead={str(i): "t" for i in range(990)}), ""),
    "params of every node that are unknown": (
        {**chain(ATTENTION), "params": {"p": "=1//0"}, "require": ["parameters < 1"]},
        "E01",
    ),
    "params that are lost": ({**chain(ATTENTION), "params": []}, "S04"),
    "budgets and ties of nested repeats": (
        {**nested(8, 10_000), "tie": [["a.*.a.*.a.wei", "a.b"]], "require": ["parameters < 1"]},
        "N07",
    ),
    "nested repeats": (nested(8, 10_000), "P06"),
    "copies that all differ": (differing(1, 10_000), "P06"),
    "copies that all differ and fit": (differing(1, 1_000), ""),
    "copies that all differ in copies that all differ": (differing(2, 500), "P06"),
    "copies of two kinds in copies that all differ": (differing(2, 500, "=i % 2 / 2"), "P06"),
    "rules for all copies": (
        repeat(10_000, index="i", instead={f"=i == {n}": "t" for n in range(990)}),
        "P06",
    ),
    "deep templates": (nested(200, 1), "W06"),
    "templates that double": (doubling(30), "P06"),
    "templates that double and fit": (doubling(16), ""),
    "deep templates that are unused": (spec(blocks=nested(900, 1)["blocks"]), "W06"),
    "a generic template of many widths": (GENERIC, "P06"),
    "lists of lists through params": (
        spec(params={"k0": [0] * 10} | {f"k{i}": [f"=k{i - 1}"] * 2 for i in range(1, 40)}),
        "S11",
    ),
    "ties without end": ({**chain(NORMED), "tie": TIES}, ""),
    "unknown ties": ({**chain(NORMED), "tie": WRONG_TIES}, "N07"),
    "ties of all copies": (repeat(10_000) | {"tie": [["a.*.a.weight"] * 2] * 500}, "P06"),
    "ties that name all copies twice": (
        repeat(10_000) | {"tie": [[f"a.{i}.a.weight", "a.*.a.bias"] for i in range(500)]},
        "P06",
    ),
    "one tie of one": ({**chain(NORMED, 1), "tie": [["n0.weight"] * 990]}, "W09"),
    "requirements": (spec(require=["1 > 2"] * 990), "E05"),
    "unknown keys": (spec(**many(20_000, "")), "S11"),
    "brackets": ("[" * (LARGEST - 1), "S06"),
    "a nest of objects": ('{"a":' * DEEPEST + "1" + "}" * DEEPEST, "S04"),
    "quotes": ('"' * LARGEST, "S01"),
    "backslashes": ('"' + "\\" * (LARGEST - 1), "S01"),
    "doubles": ('{"a": [' + ", ".join(['{"b": 1, "b": 2}'] * 20_000) + "]}", "S02"),
    "digits": ("[" + "9" * (LARGEST - 2) + "]", "S01"),
    "a doc as long as the file": (spec(doc="\u0001" * 60_000), ""),
    "256 patches of everything": (
        child(*({"select": "**", "set": {f"params.k{i}": 1}} for i in range(256))),
        "X08",
    ),
    "256 patches of one key": (
        child(*({"select": "**", "set": {"params.bias": bool(i % 2)}} for i in range(256))),
        "X08",
    ),
    "256 nodes behind every node": (child(*(inserted(f"z{i}") for i in range(256))), "X08"),
    "a node behind every node": (child(inserted("z")), "X04"),
    "every node removed": (child({"select": "**", "remove": True, "through": "x"}), "W08"),
    "256 selections of nothing": (
        child(*({"select": "a" * 60 + f"q{i}", "set": {"doc": "x"}} for i in range(256))),
        "X01",
    ),
    "256 towers of stars": (
        child(*({"select": "*n" * 20 + f"q{i}", "set": {"doc": "x"}} for i in range(256))),
        "X01",
    ),
    "100 towers of double stars": (
        child(*({"select": "/".join(["**"] * 100) + "/q", "set": {"doc": "x"}},) * 100),
        "X01",
    ),
    "a byte more than allowed": (" " * (LARGEST + 1), "InputError"),
}
"""File contents and a code that must be found; an empty code means a valid spec."""


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], list[int]]:
    """Return codes and relative time of each case, and the peak memory if it can be measured."""
    folder = tmp_path_factory.mktemp("worst")
    parent = {**chain({**LINEAR, "params": {"d_out": "=d"}}), "params": {"d": 8}}
    (folder / "big.json").write_text(json.dumps({**parent, "name": "big"}), encoding="utf-8")
    paths = {}
    for number, (name, (value, _)) in enumerate(CASES.items()):
        paths[name] = folder / f"{number}.json"
        text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
        paths[name].write_text(text, encoding="utf-8")
    usual = folder / "usual.json"
    usual.write_text(json.dumps(chain(NORMED)), encoding="utf-8")
    command = [sys.executable, "-c", RUN, str(usual), *map(str, paths.values())]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=900)
    results, *peak = json.loads(done.stdout)
    return {name: results[str(path)] for name, path in paths.items()}, peak


@pytest.mark.parametrize("name", CASES)
def test_it_is_valid_or_gives_its_finding_soon(
    name: str, opened: tuple[dict[str, Any], list[int]]
) -> None:
    """The expected finding shows that the case is not rejected for another reason."""
    (codes, time), code = opened[0][name], CASES[name][1]

    assert (code in codes) if code else codes == []
    assert time < MOST_TIME


def test_all_of_them_together_stay_within_memory(opened: tuple[dict[str, Any], list[int]]) -> None:
    """Peak memory of a process that opened all cases, including Python itself."""
    if not opened[1]:
        pytest.skip("this system does not say how much memory a process had")
    assert opened[1][0] < MOST_KILOBYTES
