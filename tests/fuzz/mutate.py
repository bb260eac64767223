"""Random mutations of JSON values and texts that reach deep into the checker.

Used by `tests/specs/test_fuzz.py` and by `fuzz_load.py`; the random generator is an
argument, so a run can be repeated.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from weft.blocks.registry import registry
from weft.graphs.checker.check import analyse
from weft.graphs.draw.outline import render
from weft.graphs.ir.canonical import canonical, fingerprint
from weft.specs.findings import MOST, Finding, InputError, SpecError
from weft.specs.load import load

WORDS: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 3, 0.5, 1e9, -1e-9, 10**9, 10**20, 2**53, 1e308),
    *("", "x", "y", "=", "=x", "=d_model", "=d_model/0", "=9**9**9", "=-d_model", "=d_model == 1"),
    *("f[B T d_model]", "mask[B S]?", "f[... d]", "ids:v[...]", "f[]", "f[", "ids:1e9[B]", "f[-1]"),
    *("head.y", "head", ".", "a.b.c", "x" * 999, "\u0000", "\ud800", "é\u202e", "__class__"),
    *("os.system", "../../etc/passwd", "/etc/passwd", "transformer-base", "spec", "encoder_layer"),
    *("linear@1", "sublayer@1", "attention@1", "dropout@1", "liner@1", "@", "**", "**/f[use=x]"),
    *([], {}, [[]], {"": {}}, ["x"], {"x": "x"}, {"use": "linear@1"}, {"use": "=x", "params": {}}),
    *({"repeat": 2, "block": "encoder_layer"}, {"repeat": 10**9, "block": "x", "carry": ["x"]}),
    {"select": "**", "set": {"params.dropout": 0.5}},
)
"""Values that are likely to cause errors."""
KEYS = (
    *("use", "in", "params", "fill", "repeat", "block", "carry", "collect", "share", "instead"),
    *("inputs", "outputs", "nodes", "blocks", "axes", "tie", "step", "require", "doc", "name"),
    *("extends", "patch", "select", "set", "replace", "insert_before", "insert_after", "remove"),
    *("expect", "format", "x", "y", "f", "memory", "mask", "B", "T", "0", "1", "", "a/b~c", "None"),
)
"""Keys that have a meaning somewhere in a spec."""


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return every place inside a value, as pairs of (container, key)."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        here = waiting.pop()
        items = here.items() if isinstance(here, dict) else enumerate(here)
        for key, inner in items:
            found.append((here, key))
            if isinstance(inner, dict | list):
                waiting.append(inner)
    return found


def mutated(value: Any, rng: random.Random, times: int) -> Any:
    """Return a copy of a value with `times` mutations."""
    value = copy.deepcopy(value)
    changes = _GENTLE if rng.random() < _GENTLY else _CHANGES
    for _ in range(times):
        known = places(value) if isinstance(value, dict | list) else []
        if not known:
            return rng.choice(WORDS)
        record, key = rng.choice(known)
        rng.choice(changes)(record, key, known, rng)
    return value


def mutated_text(text: str, rng: random.Random, times: int) -> str:
    """Return a text with pieces removed, doubled or replaced."""
    for _ in range(times):
        a, b = sorted(rng.randrange(len(text) + 1) for _ in range(2))
        b = min(b, a + rng.choice((1, 1, 4, 40)))
        piece = rng.choice(("", text[a:b] * 2, '"', "{", "]", ",", "\\", "9" * 30, "1e999", "NaN"))
        text = text[:a] + piece + text[b:]
    return text


def _delete(record: Any, key: Any, _: Any, __: random.Random) -> None:
    del record[key]


def _replace(record: Any, key: Any, _: Any, rng: random.Random) -> None:
    record[key] = copy.deepcopy(rng.choice(WORDS))


def _copy_here(record: Any, key: Any, known: Any, rng: random.Random) -> None:
    other, name = rng.choice(known)
    record[key] = copy.deepcopy(other[name])


def _swap(record: Any, key: Any, known: Any, rng: random.Random) -> None:
    other, name = rng.choice(known)
    before = copy.deepcopy(record[key])
    record[key], other[name] = copy.deepcopy(other[name]), before


def _rename(record: Any, key: Any, known: Any, rng: random.Random) -> None:
    if isinstance(record, dict):
        names = [name for _, name in known if isinstance(name, str)]
        new = rng.choice((rng.choice(KEYS), rng.choice(names), key[:-1], key + "2"))
        items = [(new if name == key else name, inner) for name, inner in record.items()]
        record.clear()
        record.update(items)


def _double(record: Any, key: Any, _: Any, rng: random.Random) -> None:
    count = rng.choice((1, 1, 2, 20))
    if isinstance(record, list):
        record.extend(copy.deepcopy([record[key]] * count))
    else:
        record |= {f"{key}{i}": copy.deepcopy(record[key]) for i in range(count)}


def _spell(record: Any, key: Any, known: Any, rng: random.Random) -> None:
    texts = [other[name] for other, name in known if isinstance(other[name], str)]
    if isinstance(record[key], str) and texts:
        text, at = record[key], rng.randrange(len(record[key]) + 1)
        record[key] = rng.choice((rng.choice(texts), text[:at] + text[at + 1 :], text[:at] + "x"))
    elif isinstance(record[key], int | float) and not isinstance(record[key], bool):
        record[key] = rng.choice((record[key] + 1, -record[key], record[key] * 1000, "=layers"))


def _wrap(record: Any, key: Any, _: Any, rng: random.Random) -> None:
    for _ in range(rng.choice((1, 2, 30))):
        record[key] = rng.choice(([record[key]], {rng.choice(KEYS): record[key]}))


def _trade(record: Any, key: Any, known: Any, rng: random.Random) -> None:
    """Replace a value by a similar one: with the same key, or with common keys inside."""
    value = record[key]
    like = [
        other[name]
        for other, name in known
        if type(other[name]) is type(value)
        and (name == key or not isinstance(value, dict) or other[name].keys() & value.keys())
    ]
    record[key] = copy.deepcopy(rng.choice(like))


def _drop(_: Any, __: Any, known: Any, rng: random.Random) -> None:
    """Remove or duplicate an entry of an object or list whose entries are all optional."""
    open_ = [
        (inner, name)
        for holder, at in known
        if at in _OPEN and isinstance(inner := holder[at], dict | list)
        for name in (inner if isinstance(inner, dict) else range(len(inner)))
    ]
    if open_:
        inner, name = rng.choice(open_)
        if rng.random() < _GENTLY:
            del inner[name]
        elif isinstance(inner, dict):
            inner[f"{name}x"[-64:]] = copy.deepcopy(inner[name])
        else:
            inner.append(copy.deepcopy(inner[name]))


_OPEN = ("nodes", "in", "params", "fill", "blocks", "inputs", "outputs", "axes", "patch", "tie")
"""Keys of objects and lists with arbitrary entries."""
_GENTLY = 0.7
"""Probability of only gentle mutations, after which the form is mostly still valid."""
_GENTLE = (_trade, _trade, _drop, _spell)
_CHANGES = (_delete, _replace, _copy_here, _swap, _rename, _double, _spell, _spell, _wrap)


def opened(path: Path) -> list[Finding]:
    """Open, check and describe a file as the commands do; return its findings.

    Raises:
        AssertionError: a finding is malformed, or there are too many findings.
    """
    try:
        loaded = load(path)
        graph, findings = analyse(loaded.form, registry(), loaded.overrides, source=loaded.source)
        findings = [loaded.place(finding) for finding in findings]
    except SpecError as error:
        graph, findings = None, list(error.findings)
    except InputError:
        return []
    assert (graph is None) == bool(findings)
    assert len(findings) <= MOST + 1
    for finding in findings:
        json.dumps(finding.as_json())
        assert finding.render().isprintable() or "\n" in finding.render()
    if graph is not None:
        assert {node.name for node in graph.root.nodes} == loaded.form.nodes.keys()
        json.dumps(canonical(graph))
        assert fingerprint(graph)
        assert render(graph)
        assert graph.parameters() >= 0
    return findings


def seeds() -> Iterator[Path]:
    """Yield the initial files of fuzzing: the stored seeds, the golden file, all shipped specs."""
    tests = Path(__file__).parents[1]
    yield from sorted((tests / "fuzz" / "seeds").glob("*.json"))
    yield tests / "golden" / "every-key.json"
    specs = tests.parent / "specs"
    yield from sorted([*specs.glob("models/*.json"), *specs.glob("variants/*.json")])
