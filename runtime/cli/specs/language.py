"""The commands `weft diff`, `swap`, `lora` and `schema`; torch only where runs are involved."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import Field

from ....graphs.diff.diff import diff as diff_graphs
from ....graphs.diff.weight_transfer import WeightTransfer, weight_transfer
from ....graphs.draw.diff import draw_diff
from ....graphs.json_schema import as_text
from ....specs.files import write_beside
from ....specs.findings import InputError, SpecError
from ....specs.inherit import parent_of
from ....specs.layout import laid_out
from ....specs.load import FOLDERS, load
from ....specs.reader import find
from ...spec.check import graph_of
from ...spec.variants import Swap
from ...spec.variants import lora as with_lora
from ...spec.variants import swap as swap_blocks
from ..common import terminal
from ..common.command import SPECS, command
from ..common.parameters import (
    Json,
    SpecName,
    argument,
    check_settings,
    complete_blocks,
    complete_specs,
    option,
    out_option,
    overridden,
)
from .documents import document_of

COLORS = {"+": "green", "-": "red", "~": "yellow", ">": "cyan"}
"""First character of a line of a diff to its color on a terminal."""


@command(SPECS, "weft diff transformer-base mine.json -o diff.svg")
def diff(
    spec: SpecName,
    other: Annotated[
        str,
        argument("OTHER", "The spec to compare it with.", complete_specs),
    ],
    *,
    out: Annotated[
        str | None, out_option("Also draw the differences: .svg, .png, .pdf or .dot.")
    ] = None,
    json_: Json = False,
) -> None:
    """Print the differences between two specs, and the weights that carry over.

    The exit code is 0 whether or not they differ; programs read `equal` in the JSON output.
    """
    from rich.text import Text

    old, new = graph_of(spec), graph_of(other)
    difference = diff_graphs(old, new)
    if out:
        draw_diff(old, new, difference, Path(out))
    if json_:
        print(json.dumps(difference.as_json(), indent=2, ensure_ascii=False))
        return
    console = terminal.console(sys.stdout)
    for line in difference.render().splitlines():
        console.print(Text(line, style=COLORS.get(line[:1], "") if line[1:2] == " " else ""))
    if out:
        console.print(Text(f"drawn      {out}"))


_VariantName = Annotated[
    str | None,
    option("--name", "Name of the variant. [default: the file name without its suffix]"),
]


@command(
    SPECS,
    "weft swap transformer-base '**/f[use=attention@1]' --use attention@1 "
    "--set kv_heads=2 -o gqa.json",
)
def swap(
    spec: SpecName,
    select: Annotated[
        str,
        argument("SELECT", "Nodes to replace: a path with * and **, and [key=value]."),
    ],
    *,
    use: Annotated[
        str,
        option("--use", "The replacement block.", metavar="BLOCK", complete=complete_blocks),
    ],
    out: Annotated[str, out_option("Spec file to write.")],
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="PARAM=VALUE",
            help="A param of the new block, such as kv_heads=2.",
            callback=check_settings,
        ),
    ] = None,
    expect: Annotated[
        int | None,
        Field(ge=1),
        option("--expect", "Number of nodes that must match. [default: at least 1]"),
    ] = None,
    name: _VariantName = None,
    json_: Json = False,
) -> None:
    """Write a variant with some blocks replaced, and report which weights carry over.

    Raises:
        InputError: a spec at the output path cannot extend the original spec.
        SpecError: the variant is invalid; nothing is written.
    """
    path = Path(out)
    extends = _extends(spec, path)
    old = load(spec)
    before = graph_of(old)
    names = extends, name or path.stem
    try:
        swapped = swap_blocks(
            old, select, use, overridden(overrides), expect=expect, names=names, source=out
        )
    except SpecError:
        print(f"{out} is not written, because the variant is invalid:\n", file=sys.stderr)
        raise
    _write(path, swapped.child)
    weights = weight_transfer(before, swapped.graph)
    if json_:
        print(json.dumps({"spec": swapped.child, "weights": weights.as_json()}, indent=2))
        return
    count = len(swapped.changes)
    print(f"wrote {out}: {extends} with {use} in {count} place{'s' * (count != 1)}")
    print(_swapped(swapped, weights))


@command(
    SPECS, "weft lora gpt2 '**[use=attention@1]' --rank 8 --maps query,value -o gpt2-lora.json"
)
def lora(
    spec: SpecName,
    select: Annotated[
        str,
        argument("SELECT", "Blocks with linear maps: a path with * and **, and [key=value]."),
    ],
    *,
    rank: Annotated[int, Field(ge=1), option("--rank", "Rank of the matrices.")],
    out: Annotated[str, out_option("Spec file to write.")],
    alpha: Annotated[
        float,
        Field(gt=0),
        option("--alpha", "Scale: the product of the matrices is multiplied by alpha / rank."),
    ] = 16.0,
    maps: Annotated[
        str | None,
        option("--maps", "Linear maps of these blocks, such as query,value. [default: all]"),
    ] = None,
    name: _VariantName = None,
    json_: Json = False,
) -> None:
    """Write a variant with low-rank matrices in linear maps, to train them alone (LoRA).

    Raises:
        InputError: a spec at the output path cannot extend the original spec.
        SpecError: the variant is invalid; nothing is written.
    """
    path = Path(out)
    extends = _extends(spec, path)
    names, chosen = (extends, name or path.stem), maps.split(",") if maps is not None else []
    variant = with_lora(load(spec), select, rank, alpha, chosen, names=names, source=out)
    _write(path, variant.child)
    count = len(variant.matrices) // 2
    if json_:
        print(json.dumps({"spec": variant.child, "maps": count, "parameters": variant.added}))
        return
    print(f"wrote {out}: {extends} with LoRA of {count} linear map{'s' * (count != 1)}")
    print(f"{variant.added:,} of {variant.graph.parameters():,} parameters are LoRA")
    print('to train them alone, a run sets "freeze": ["model"], "train": ["**.lora.**"]')


def _write(path: Path, variant: Mapping[str, Any]) -> None:
    """Write a variant, laid out for reading."""
    write_beside(path, laid_out(json.dumps(variant, ensure_ascii=False)).encode(), "spec")


def _extends(spec: str, out: Path) -> str:
    """Return the name by which a variant written to `out` can extend the spec."""
    path = find(spec, *FOLDERS)
    if out.exists() and out.resolve() == path.resolve():
        help_ = "write the variant to another file"
        raise InputError(
            "the variant would overwrite the spec that it extends", location=str(out), help=help_
        )
    parent = parent_of(path.stem, out)
    if parent is None or parent.resolve() != path.resolve():
        other = f"; there, '{path.stem}' is {parent}" if parent else ""
        problem = f"a spec in folder '{out.parent}' cannot extend '{path}'{other}"
        help_ = f"write it to the folder of that spec: -o {path.parent / out.name}"
        raise InputError(problem, location=str(out), help=help_)
    return path.stem


def _swapped(swapped: Swap, weights: WeightTransfer) -> str:
    """Return the changed nodes and the weights that carry over, as text."""
    lines = []
    width = max(len(change.path) for change in swapped.changes)
    for change in swapped.changes:
        lost = f", without {', '.join(change.lost)}" if change.lost else ""
        lines.append(f"  {change.path:{width}}  was {change.use}{lost}")
    if swapped.unread:
        lines.append(f"unused params removed: {', '.join(swapped.unread)}")
    return "\n".join([*lines, "", weights.render().rstrip("\n")])


@command(SPECS, "weft schema -o weft.schema.json", "weft schema run -o run.schema.json")
def schema(
    kind: Annotated[
        str, argument("KIND", "Kind of file, such as spec, run or study. [default: spec]")
    ] = "spec",
    *,
    out: Annotated[str | None, out_option("File to write. [default: print it]")] = None,
) -> None:
    """Print the JSON Schema of a kind of file, with which editors check files.

    Raises:
        InputError: there is no such kind.
    """
    _give(as_text(document_of(kind).json_schema()), out)


def _give(text: str, out: str | None) -> None:
    """Print a text, or write it to a file and print the file's name."""
    if out is None:
        sys.stdout.write(text)
        return
    write_beside(Path(out), text.encode(), "file")
    print(out)
