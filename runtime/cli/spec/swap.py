"""The command `weft swap`: write a variant as a patch and report which weights carry over."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ....graphs.diff.weight_transfer import WeightTransfer, weight_transfer
from ....specs.files import write_beside
from ....specs.findings import InputError, SpecError
from ....specs.inherit import parent_of
from ....specs.load import FOLDERS, load, parse_overrides
from ....specs.reader import find
from ...spec.check import graph_of
from ...spec.swap import Swap
from ...spec.swap import swap as swap_blocks

_WIDEST = 100
"""Most characters in one line of a written spec."""


def swap(options: Namespace) -> None:
    """Write the variant, then print the changes and which weights carry over.

    Raises:
        InputError: a spec at the output path cannot extend the original spec.
        SpecError: the variant is invalid; nothing is written.
    """
    out = Path(options.out)
    extends = _extends(options.spec, out)
    old = load(options.spec)
    before = graph_of(old)
    params = parse_overrides(options.set)
    names = extends, options.name or out.stem
    try:
        made = swap_blocks(
            old,
            options.select,
            options.use,
            params,
            expect=options.expect,
            names=names,
            source=options.out,
        )
    except SpecError:
        print(f"{options.out} is not written, because the variant is invalid:\n", file=sys.stderr)
        raise
    write_beside(out, spec_text(made.child).encode(), "spec")
    weights = weight_transfer(before, made.graph)
    if options.json:
        print(json.dumps({"spec": made.child, "weights": weights.as_json()}, indent=2))
        return
    print(_text(options, made, weights, extends))


def _extends(spec: str, out: Path) -> str:
    """Return the name by which a variant written to `out` can extend the spec."""
    path = find(spec, *FOLDERS)
    if out.exists() and out.resolve() == path.resolve():
        help_ = "write the variant to another file"
        raise InputError(
            "the variant would overwrite the spec that it extends", place=str(out), help=help_
        )
    parent = parent_of(path.stem, out)
    if parent is None or parent.resolve() != path.resolve():
        other = f"; there, '{path.stem}' is {parent}" if parent else ""
        problem = f"a spec in folder '{out.parent}' cannot extend '{path}'{other}"
        help_ = f"write it to the folder of that spec: -o {path.parent / out.name}"
        raise InputError(problem, place=str(out), help=help_)
    return path.stem


def _text(options: Namespace, made: Swap, weights: WeightTransfer, extends: str) -> str:
    count = len(made.changes)
    lines = [
        f"wrote {options.out}: {extends} with {options.use} in {count} place{'s' * (count != 1)}"
    ]
    width = max(len(change.path) for change in made.changes)
    for change in made.changes:
        lost = f", without {', '.join(change.lost)}" if change.lost else ""
        lines.append(f"  {change.path:{width}}  was {change.use}{lost}")
    if made.unread:
        lines.append(f"unused params removed: {', '.join(made.unread)}")
    return "\n".join([*lines, "", weights.render().rstrip("\n")])


def spec_text(child: Mapping[str, Any]) -> str:
    """Return a variant as JSON text, with each patch on one line if it fits."""
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in child.items()]
    patches = []
    for patch in child["patch"]:
        text = json.dumps(patch, ensure_ascii=False)
        if len(text) > _WIDEST:
            parts = [f"{json.dumps(key)}: {json.dumps(part)}" for key, part in patch.items()]
            text = "{\n      " + ",\n      ".join(parts) + "\n    }"
        patches.append(f"    {text}")
    lines[-1] = '  "patch": [\n' + ",\n".join(patches) + "\n  ]"
    return "{\n" + ",\n".join(lines) + "\n}\n"
