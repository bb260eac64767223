"""The commands `weft list`, `expand`, `draw`, `blocks` and `prove`.

Only `prove` loads torch.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import typer
from pydantic import Field

from ....blocks.registry import registry
from ....graphs.ir.block_type import BlockType
from ....graphs.ir.canonical import canonical
from ....specs.findings import InputError
from ....specs.load import load, loaded
from ....specs.reader import RUN_FOLDER, read_file, run_in, shipped_names
from ...prove.report import Name
from ...spec.check import analysed, graph_of
from ...spec.provenance import provenance
from ...spec.provenance import render as render_provenance
from ...system.plugins import Plugins
from ..common import terminal
from ..common.command import SPECS, command, wrong
from ..common.parameters import (
    Json,
    Overrides,
    SpecName,
    argument,
    axes_option,
    complete_blocks,
    option,
    out_option,
    overridden,
    sizes_given,
)
from .showing import graph_to_show

_FOLDERS = {
    "specs": "models",
    "variants": "variants",
    "pretrained": "pretrained",
    "objectives": "objectives",
    "runs": RUN_FOLDER,
    "studies": "studies",
    "imports": "imports",
}
"""What `weft list` lists to the folder of `specs/` that contains it."""
Listed = Literal[
    "specs",
    "variants",
    "pretrained",
    "objectives",
    "runs",
    "studies",
    "imports",
    "blocks",
    "columns",
    "readers",
    "metrics",
    "predictors",
    "optimizers",
    "trackers",
    "exporters",
]
"""What `weft list` lists, in order."""


@command(SPECS, "weft list", "weft list runs --json", name="list")
def list_(
    what: Annotated[
        Listed | None,
        typer.Argument(
            metavar="KIND",
            help="What to list. [default: everything]",
            show_default=False,
        ),
    ] = None,
    *,
    json_: Json = False,
) -> None:
    """List what weft ships: specs, objectives, runs, blocks, metrics, readers and others.

    All from blocks on include those of installed packages. On a terminal, `weft list` alone prints
    as many names as fit.
    """
    listing = {kind: shipped_lines(kind) for kind in get_args(Listed) if what in (None, kind)}
    if json_:
        print(json.dumps(listing, indent=2, ensure_ascii=False))
        return
    # Lines are wrapped on a terminal only, so that programs read one thing on each.
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    if what is None and sys.stdout.isatty():
        print("\n".join(_overview(listing, width)))
        return
    for kind, entries in listing.items():
        if what is None:
            print(f"{kind}:")
        column = max(map(len, entries), default=0)
        for name, doc in entries.items():
            start = f"{'  ' * (what is None)}{name:{column}}  "
            print("\n".join(_wrapped(start, doc, width)))
        if what is None:
            print()


def _overview(listing: Mapping[str, Mapping[str, str]], width: int) -> Iterator[str]:
    """Yield a line for each kind, with its number and as many names as fit a width."""
    column = max(map(len, listing))
    for kind, entries in listing.items():
        start, names = f"{kind:{column}} {len(entries):4}  ", ", ".join(entries)
        room = max(20, width - len(start))
        yield start + (names if len(names) <= room else f"{names[: room - 1].rpartition(', ')[0]}…")
    yield "\nAll of a kind: weft list specs. One of them: weft show SPEC, weft blocks BLOCK."


def _wrapped(start: str, text: str, width: int) -> list[str]:
    """Return lines of a width that begin with a start, and then with as many spaces."""
    if len(start) + len(text) <= width:
        return [f"{start}{text}".rstrip()]
    indent = " " * len(start) if len(start) <= width // 2 else "    "
    wrapper = textwrap.TextWrapper(
        max(20, width),
        initial_indent=start,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return wrapper.wrap(text)


def shipped_lines(kind: str) -> dict[str, str]:
    """Return one line about each thing of a kind, by name."""
    from ...checkpoint.exporter import EXPORTERS
    from ...data.columns.registry import COLUMNS
    from ...data.readers.registry import READERS
    from ...decode.predictors.registry import PREDICTORS
    from ...metrics.registry import METRICS
    from ...train.recipe.optimizers import OPTIMIZERS
    from ...train.trackers import TRACKERS

    if kind in _FOLDERS:
        return dict(_files(_FOLDERS[kind]))
    plugins: dict[str, Plugins[Any]] = {
        "columns": COLUMNS,
        "readers": READERS,
        "metrics": METRICS,
        "predictors": PREDICTORS,
        "optimizers": OPTIMIZERS,
        "trackers": TRACKERS,
        "exporters": EXPORTERS,
    }
    return plugins[kind].lines() if kind in plugins else dict(_blocks())


def _blocks() -> Iterator[tuple[str, str]]:
    """Yield the key of each registered block, and what it computes."""
    for block in registry():
        yield block.key, block.doc.partition(";")[0].rstrip(".")


def _files(folder: str) -> Iterator[tuple[str, str]]:
    """Yield the name of each shipped file of a folder, and the first sentence of its `doc`."""
    for name, path in sorted(shipped_names(folder).items()):
        value, _ = read_file(path)
        yield name, _first_sentence(str(value.get("doc", "")))


def _first_sentence(text: str) -> str:
    """Return a text up to its first full stop; the one of "et al." is none."""
    return re.split(r"(?<!\bal)\.(?:\s|$)", text, maxsplit=1)[0]


@command(
    SPECS,
    "weft expand transformer-base > full.json",
    "weft expand my.json --provenance",
    "weft expand multi30k-en-de > my-run.json",
)
def expand(
    spec: SpecName,
    *,
    overrides: Overrides = None,
    origins: Annotated[
        bool, typer.Option("--provenance", help="Print where each value came from, line by line.")
    ] = False,
    json_: Json = False,
) -> None:
    """Print a spec or a run with all defaults and inherited values filled in."""
    if (read := run_in(spec)) is not None:
        from ...train.plan import complete, run_of

        run, source = run_of(*read, overridden(overrides)), read[1]
        if origins:
            raise wrong(
                "--provenance", "a run inherits nothing; give it its objective or its model"
            )
        print(json.dumps(complete(run, source), indent=2, ensure_ascii=False))
        return
    loaded = load(spec, overridden(overrides))
    graph = graph_of(loaded)
    if not origins:
        print(json.dumps(canonical(graph), indent=2, ensure_ascii=False))
        return
    provenance_entries = provenance(graph, loaded)
    if json_:
        report = {"spec": canonical(graph), "provenance": provenance_entries}
        print(json.dumps(report, indent=2, ensure_ascii=False))
        return
    print(render_provenance(provenance_entries))


@command(
    SPECS,
    "weft draw transformer-base -o base.svg --form typed",
    "weft draw transformer-base -o base.html",
    "weft draw transformer-base -o figure-1.tex --style paper",
    "weft draw transformer-base -o figure-2.pdf --node 'encoder.*.self_attention'",
)
def draw(
    spec: SpecName,
    *,
    out: Annotated[
        str,
        out_option(
            "File to write: .svg, .png, .pdf, .dot, .tex (TikZ), or .html, a page that folds."
        ),
    ],
    form: Annotated[
        Literal["folded", "typed", "expanded"],
        typer.Option(
            "--form",
            help="`folded` draws repeated layers as one box, `typed` adds the type of every wire, "
            "`expanded` draws every layer and the templates in slots.",
        ),
    ] = "folded",
    style: Annotated[
        Literal["plain", "paper"],
        typer.Option(
            "--style",
            help="`plain` writes params and masks, `paper` draws as in 'Attention Is All You "
            "Need', Figures 1 and 2.",
        ),
    ] = "plain",
    residuals: Annotated[
        bool, typer.Option("--residuals", help="Draw residual paths as arrows around the boxes.")
    ] = False,
    node: Annotated[
        str,
        typer.Option(
            "--node",
            metavar="PATH",
            help="Draw the inside of this node: attention, a template, or the model of an "
            "objective. `weft show` lists the paths.",
            show_default=False,
        ),
    ] = "",
    overrides: Overrides = None,
) -> None:
    """Draw a spec as a diagram."""
    from ....graphs.draw.diagram import draw as draw_graph

    graph = graph_to_show(spec, overrides)
    print(draw_graph(graph, Path(out), form, style=style, residuals=residuals, node=node))


@command(SPECS, "weft blocks attention@1")
def blocks(
    name: Annotated[
        str,
        argument(
            "BLOCK",
            "A block, with or without its version (see `weft list blocks`).",
            complete_blocks,
        ),
    ],
    *,
    json_: Json = False,
) -> None:
    """Print a block's ports, params and source, and an example of its use with its weights.

    Raises:
        InputError: no block has that name.
    """
    described = described_block(name)
    print(json.dumps(described, indent=2) if json_ else _text(described))


def described_block(name: str) -> dict[str, Any]:
    """Return a block as plain data; its ports are listed with every optional port wired.

    Raises:
        InputError: no block has that name.
    """
    block_types = registry()
    block = block_types.get(name) or block_types.get(block_types.suggest(name))
    if block is None or name not in (block.key, block.name):
        near = f"did you mean '{block.key}'?" if block else "see 'weft list blocks'"
        raise InputError(f"unknown block '{name}'", help=near)
    params = block.params.model_validate(block.example)
    signature = block.signature(params, frozenset(block.example_inputs))
    schema = block.params.model_json_schema()
    return {
        "use": block.key,
        "doc": block.doc,
        "source": block.source,
        "inputs": {
            port.name: {"type": f"{port.type}{'?' * port.optional}", "doc": port.doc}
            for port in signature.inputs
        },
        "outputs": {
            port.name: {"type": f"{port.type}{'?' * port.optional}", "doc": port.doc}
            for port in signature.outputs
        },
        "slots": {
            slot.name: {"type": f"{slot.input.type} -> {slot.output.type}", "doc": slot.doc}
            for slot in signature.slots
        },
        "params": schema.get("properties", {}),
        "required": schema.get("required", []),
        "example": {
            "use": block.key,
            **({"params": dict(block.example)} if block.example else {}),
            **({"fill": dict(block.example_fill)} if block.example_fill else {}),
        },
        "weights": {path: list(shape) for path, shape in _example_weights(block).items()},
    }


_NODE = "block"
_AXIS = re.compile(r"\b[A-Z]\w*")


def _example_weights(block: BlockType) -> dict[str, tuple[int, ...]]:
    """Return the weights of a block's example by path; empty for a part of another block."""
    params = block.params.model_validate(block.example)
    ports = frozenset(block.example_inputs)
    names = (name for text in block.example_inputs.values() for name in _AXIS.findall(text))
    outputs = [port.name for port in block.signature(params, ports).outputs if not port.optional]
    use = {"use": block.key, "in": {name: name for name in ports}, "params": dict(block.example)}
    spec = {
        "format": 1,
        "name": "example",
        "axes": {name: "batch" if name == "B" else "time" for name in names},
        "inputs": dict(block.example_inputs),
        "outputs": {name: f"{_NODE}.{name}" for name in outputs},
        "nodes": {_NODE: use | ({"fill": dict(block.example_fill)} if block.example_fill else {})},
    }
    graph, _ = analysed(loaded(spec))
    weights = {} if graph is None else graph.weights()
    return {path.removeprefix(f"{_NODE}."): shape for path, shape in weights.items()}


def _text(described: dict[str, Any]) -> str:
    lines = [described["use"], f"  {described['doc']}", f"  source: {described['source']}"]
    for part in ("inputs", "outputs", "slots"):
        if described[part]:
            lines.append(f"\n{part}")
        width = max([len(name) for name in described[part]], default=0)
        for name, entry in described[part].items():
            lines.append(f"  {name:{width}}  {entry['type']:28} {entry['doc']}")
    if described["params"]:
        lines.append("\nparams")
    width = max([len(name) for name in described["params"]], default=0)
    for name, entry in described["params"].items():
        default = "required" if name in described["required"] else json.dumps(entry.get("default"))
        lines.append(f"  {name:{width}}  {default:28} {entry.get('description', '')}")
    lines.append(f"\nexample\n  {json.dumps(described['example'])}")
    width = max([len(path) for path in described["weights"]], default=0)
    lines += ["\nweights of the example"] if described["weights"] else []
    for path, shape in described["weights"].items():
        lines.append(f"  {path:{width}}  {' × '.join(map(str, shape)) or 'a number'}")
    return "\n".join(lines)


@command(
    SPECS,
    "weft prove my.json --set layers=2",
    "weft prove my.json --axes T=40 --only causality",
    "weft prove transformer-untied --coordinates d_model=64,heads=1,d_ff=256",
    note="""The properties: `steps`, decoding equals the parallel pass; `causality`, later positions
change no earlier output; `padding` changes nothing elsewhere; `compiled`, `unpadded`
and `saved` models equal the plain one; `gradients` reach every parameter. The exit code
is 1 if one fails.""",
)
def prove(
    spec: SpecName,
    *,
    overrides: Overrides = None,
    axes: Annotated[
        list[str] | None, axes_option("2 sequences, and a length of at least 7 for other axes")
    ] = None,
    seed: Annotated[
        int, Field(ge=0), typer.Option("--seed", help="Seed of the weights and the inputs.")
    ] = 1,
    only: Annotated[
        list[Name] | None,
        option("--only", "Test only this property. Repeat the option for several."),
    ] = None,
    skip: Annotated[
        list[Name] | None,
        option("--skip", "Do not test this property. Repeat the option for several."),
    ] = None,
    no_compile: Annotated[
        bool,
        typer.Option(
            "--no-compile", help="Do not test `compiled`, which takes about a minute on a CPU."
        ),
    ] = False,
    tolerance: Annotated[
        float,
        Field(gt=0),
        typer.Option(
            "--tolerance", help="Largest relative difference that passes, in float64 arithmetic."
        ),
    ] = 1e-6,
    widths: Annotated[
        str | None,
        option(
            "--coordinates",
            "Instead, train models of these params and of 2, 4 and 8 times their sizes for a few "
            "updates, with initial weights and rates of muP, and print whether values grow.",
        ),
    ] = None,
    standard: Annotated[
        bool,
        typer.Option(
            "--standard", help="With --coordinates: the same weights and rates at every width."
        ),
    ] = False,
    json_: Json = False,
) -> int:
    """Test properties of a spec and its blocks on random weights and inputs, on the CPU."""
    from ...prove.predictions import run_named
    from ...prove.prove import prove as proved

    if standard and widths is None:
        raise wrong("--standard", "it has an effect only with --coordinates")
    if widths is not None:
        others = {"--only": only, "--skip": skip, "--no-compile": no_compile, "--axes": axes}
        if idle := [name for name, value in others.items() if value]:
            raise wrong(idle[0], "it has no effect with --coordinates")
        return _coordinates(spec, widths, overridden(overrides), standard=standard, json_=json_)
    skipped = {*(skip or ()), *(["compiled"] if no_compile else [])}
    if overlap := skipped & {*(only or ())}:
        raise wrong("--only", f"'{min(overlap)}' is also skipped")
    run, graph = run_named(spec, overridden(overrides)) or (None, graph_to_show(spec, overrides))
    report = proved(
        graph,
        run=run,
        sizes=sizes_given(graph, axes or ()),
        seed=seed,
        only=only or (),
        skip=skipped,
        tolerance=tolerance,
        progress=terminal.notice,
    )
    print(json.dumps(report.as_json(), indent=2) if json_ else report.render())
    return int(not report.passed)


def _coordinates(
    spec: str, widths: str, overrides: dict[str, Any], *, standard: bool, json_: bool
) -> int:
    """Print how large the values of a spec are at several widths; return the exit code."""
    from ...prove.coordinates import coordinates

    base = {}
    for text in widths.split(","):
        name, _, size = text.partition("=")
        if not size.strip().isdecimal() or int(size) < 1:
            raise wrong("--coordinates", f"'{text.strip()}' is no param with a size, as d_model=64")
        base[name.strip()] = int(size)
    report = coordinates(
        spec, base, overrides=overrides, standard=standard, progress=terminal.notice
    )
    print(json.dumps(report.as_json(), indent=2) if json_ else report.render())
    return int(not report.passed)
