"""The command `weft show`: the nodes of a spec, the passes over its graph, and its code.

It does not load torch.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ....graphs.draw.outline import as_json, render, render_weights, weights_of
from ....graphs.ir.execution import Prepacked
from ....graphs.ir.graph import Graph
from ....graphs.passes.freeze import trained_weights
from ....graphs.passes.objective import deployed_graph
from ....graphs.passes.pipeline import (
    NAMES,
    DecodePasses,
    PassName,
    PassSettings,
    PassStep,
    Purpose,
    one_by_one,
    pipeline,
)
from ....graphs.passes.widths import growth
from ....specs.findings import InputError, SpecError, did_you_mean
from ....specs.load import FOLDERS, load
from ....specs.reader import RUN_FOLDER, find, run_in
from ...checkpoint.curve import Curve, stretches
from ...data.plans.mixture import described
from ...spec.check import graph_of
from ...train.recipe.groups import weight_groups, with_widths
from ...train.recipe.schedule import peak_of
from ..common.command import SPECS, command
from ..common.parameters import Json, Overrides, SpecName, overridden

if TYPE_CHECKING:
    from ....graphs.ir.graph import Graph
    from ...data.plans.updates import UpdateLengths
    from ...train.objective import Objective
    from ...train.run import Run


@command(
    SPECS,
    "weft show transformer-tiny",
    "weft show transformer-tiny --weights",
    "weft show multi30k-en-de --passes",
    "weft show multi30k-en-de --after unpad",
    "weft show transformer-tiny --code --train --without unpad",
    "weft show transformer-base --code --decode",
)
def show(
    spec: SpecName,
    *,
    weights: Annotated[
        bool,
        typer.Option("--weights", help="Print the path and the shape of each parameter instead."),
    ] = False,
    passes: Annotated[
        bool, typer.Option("--passes", help="Print the passes, and what each changes.")
    ] = False,
    code: Annotated[
        bool, typer.Option("--code", help="Print the Python that computes the model.")
    ] = False,
    train: Annotated[
        bool, typer.Option("--train", help="The passes of training, or the code after them.")
    ] = False,
    decode: Annotated[
        bool, typer.Option("--decode", help="The passes of decoding, or the code after them.")
    ] = False,
    export: Annotated[
        bool, typer.Option("--export", help="The passes of an ONNX export, or the code after them.")
    ] = False,
    after: Annotated[
        PassName | None,
        typer.Option(
            "--after", help="Stop after this pass. Alone, print what it changes in the code."
        ),
    ] = None,
    without: Annotated[
        list[PassName] | None, typer.Option("--without", help="Leave this pass out.")
    ] = None,
    quantize: Annotated[
        Literal["none", "int8"] | None,
        typer.Option("--quantize", help="Products of large linear maps in decoding."),
    ] = None,
    shortlist: Annotated[
        bool, typer.Option("--shortlist", help="Compute the logits of a shortlist in decoding.")
    ] = False,
    overrides: Overrides = None,
    json_: Json = False,
) -> None:
    """Print the tree of a spec's nodes, with types and parameters, or how it is computed.

    For a run whose data is prepared in outputs/NAME, a line tells how lengths mix in an update.

    --passes alone prints the passes of training, and --code alone the code before all passes.
    The passes of a run are those of its settings, less those of "without". Whether "padding":
    "auto" unpads depends on the data; here it does. Kernels that are "auto" are measured when
    training begins. A run with settings of parallelism is shown for two groups of processes, any
    other for one process; decoding as on a CPU whose kernels take prepacked matrices.
    """
    purposes: list[Purpose] = []
    purposes += ["train"] if train else []
    purposes += ["decode"] if decode else []
    purposes += ["export"] if export else []
    differs = after is not None and not (passes or code)
    if weights and (passes or code or purposes or after or without):
        raise InputError(
            "--weights prints no passes and no code", location="--weights", help="give it alone"
        )
    _refuse_idle(
        passes=passes,
        code=code or differs,
        purposes=purposes,
        json_=json_,
        narrows=bool(after or without),
    )
    for option, is_set in (("--quantize", quantize is not None), ("--shortlist", shortlist)):
        if is_set and not decode:
            problem = f"{option} has no effect here"
            more = "--decode" if passes or code or differs else "--decode --passes"
            raise InputError(problem, location=option, help=f"add {more}")
    trains = (passes or code or differs) and not (decode or export)
    graph, settings, objective, run = _opened(spec, overrides, trains=trains)
    if weights:
        print(json.dumps(weights_of(graph), indent=2) if json_ else render_weights(graph))
        return
    if not (passes or code or differs):
        _print_tree(graph, objective, run, json_=json_)
        return
    purpose: Purpose = purposes[0] if purposes else "train"
    left_out = tuple(without or ())
    if purpose != "train":
        graph = deployed_graph(graph)
        settings = _settings_of(graph, purpose, quantize=quantize == "int8", shortlisted=shortlist)
    steps = _steps(graph, settings, left_out, after)
    if differs:
        print(_difference([one_by_one(graph), *(step.graph for step in steps)], str(after)))
    elif passes:
        print(json.dumps(list(map(_as_json, steps)), indent=2) if json_ else _listed(steps))
    else:
        print("\n\n".join(_sources(steps[-1].graph if purposes and steps else graph)))


def _print_tree(graph: Graph, objective: Objective | None, run: Run | None, *, json_: bool) -> None:
    """Print the nodes of a graph, and how a run updates their weights."""
    if run is None or objective is None:
        print(json.dumps(as_json(graph), indent=2) if json_ else render(graph))
        return
    from ....graphs.passes.freeze import trained_weights
    from ...train.recipe.groups import wrong_groups

    trained = trained_weights(graph, run.freeze, run.train if run.freeze else ())
    if findings := [*wrong_groups(run.optimizer, graph, trained)]:
        raise SpecError([replace(finding, source=run.name) for finding in findings])
    scaled = run.parametrization
    value = recipe(run, graph, None if scaled is None else objective.base(scaled.mup.base))
    lengths = _lengths_in_updates(run)
    if json_:
        update = {} if lengths is None else {"update": lengths._asdict()}
        print(json.dumps(as_json(graph) | {"recipe": value} | update, indent=2))
        return
    print("\n".join([render(graph), "", *recipe_lines(value)]))
    if lengths is not None:
        print(f"  {lengths}")


def graph_to_show(spec: str, overrides: list[str] | None) -> Graph:
    """Return the graph of a spec; of a run, that of what it trains."""
    return _opened(spec, overrides)[0]


def _lengths_in_updates(run: Run) -> UpdateLengths | None:
    """Return the lengths in an update of a run whose data is prepared in its default folder."""
    from ...data.plans.updates import lengths_in_updates
    from ...data.shards.corpus import HEADER, Corpus

    folder = Path("outputs") / run.name / "prepared" / "train"
    if not (folder / HEADER).is_file():
        return None
    try:
        return lengths_in_updates(Corpus.open(folder), run.batch_at(1), run.seed, run.batches_at(1))
    except InputError:  # a batch has no room for a row, as training says
        return None


def _opened(
    spec: str, overrides: list[str] | None, *, trains: bool = False
) -> tuple[Graph, PassSettings, Objective | None, Run | None]:
    """Return the graph of a spec or of what a run trains, the settings of its passes, and the run.

    Args:
        spec: a spec, or a run.
        overrides: `PATH=VALUE` texts.
        trains: whether the passes of training are wanted.

    Raises:
        InputError: there is no such file.
        SpecError: it has mistakes; those of a run are found if `trains` is set, except missing
            data and settings without effect.
    """
    if (read := run_in(spec)) is None:
        find(spec, *FOLDERS, RUN_FOLDER)  # an error suggests names of runs too
        return graph_of(load(spec, overridden(overrides))), PassSettings(), None, None
    from ...train.checks.effects import conflicts
    from ...train.checks.model import objective_fits
    from ...train.objective import Objective
    from ...train.plan import run_of, settings_of_run

    value, source = read
    run = run_of(value, source, overridden(overrides))
    objective = Objective.of(run, source)
    graph = objective.graph
    if trains and (findings := [*conflicts(run), *objective_fits(run, graph)]):
        raise SpecError([replace(finding, source=source) for finding in findings])
    parallel = run.parallel.tensor > 1 or run.parallel.data != "auto"
    processes = 2 * run.parallel.tensor if parallel else 1
    return graph, settings_of_run(run, unpad=True, processes=processes), objective, run


def _refuse_idle(
    *, passes: bool, code: bool, purposes: list[Purpose], json_: bool, narrows: bool
) -> None:
    """Refuse options that would have no effect.

    Raises:
        InputError: there is one.
    """
    options = " and ".join(f"--{purpose}" for purpose in purposes)
    idle = {
        options: (bool(purposes) and not (code or passes), "add --code or --passes"),
        f"{options} together": (len(purposes) > 1, "give one of them"),
        "--after or --without": (
            narrows and not (passes or code or purposes),
            "add --passes, --train, --decode or --export",
        ),
        "--code": (code and passes, "give either --code or --passes"),
        "--json": (json_ and code, "leave it out, or use --passes"),
    }
    for option, (wrong, help_) in idle.items():
        if wrong:
            raise InputError(f"{option} has no effect here", location=option, help=help_)


def _settings_of(
    graph: Graph, purpose: Purpose, *, quantize: bool, shortlisted: bool
) -> PassSettings:
    """Return the settings of the passes of decoding or of an export.

    Raises:
        InputError: the graph does not decode.
    """
    if purpose == "decode" and graph.step_axis is None:
        raise InputError(
            f"'{graph.name}' does not decode: its spec has no 'step'",
            location="--decode",
            help="use --train, or a model with a 'step', such as transformer-base",
        )
    quantized: Prepacked | None = "float32" if quantize else None
    passes = DecodePasses(
        unpad=True, shortlisted=shortlisted, quantized=quantized, prepacked="float32", compiled=True
    )
    return PassSettings(purpose=purpose, decode=passes)


def _steps(
    graph: Graph, settings: PassSettings, without: Sequence[PassName], after: PassName | None
) -> list[PassStep]:
    """Return the passes of a graph, up to one of them.

    Args:
        graph: the graph.
        settings: settings of the passes; a run may leave some out.
        without: further passes to leave out.
        after: the last pass to run; None to run all.

    Raises:
        InputError: the last one is left out, one is left out twice, or a pass is none of its
            purpose.
    """
    if twice := [name for name in without if name in settings.without]:
        problem = f"the run leaves '{twice[0]}' out already"
        raise InputError(problem, location="--without", help="remove the option")
    settings = replace(settings, without=(*settings.without, *without))
    if after in settings.without:
        raise InputError(f"the pass '{after}' is left out", location="--after", help="leave it in")
    names = NAMES[settings.purpose]
    selections = [*(("--after", after) for _ in range(after is not None))]
    selections += [("--without", name) for name in without]
    for option, name in selections:
        if name not in names:
            problem = f"'{name}' is not a pass of --{settings.purpose}"
            others = [f"add --{flag}" for flag in NAMES if name in NAMES[flag]]
            help_ = others[0] if settings.purpose == "train" and others else ""
            raise InputError(problem, location=option, help=help_ or did_you_mean(str(name), names))
    return pipeline(graph, settings, after)


def _listed(steps: list[PassStep]) -> str:
    """Return the passes as text: name, what it does, and what it changed."""
    lines = []
    for number, step in enumerate(steps, 1):
        lines.append(f"{number} {step.name:<11} {step.does}")
        lines += [f"{'':14}{line}" for line in step.changed or ("changes nothing here",)]
    return "\n".join(lines)


def _as_json(step: PassStep) -> dict[str, Any]:
    return {"pass": step.name, "does": step.does, "changed": list(step.changed)}


def _difference(graphs: list[Graph], name: str) -> str:
    """Return what the last of some passes changes in the code, as a unified diff."""
    before, after = ("\n\n".join(_sources(graph)).splitlines() for graph in graphs[-2:])
    files = (f"before {name}", f"after {name}")
    lines = list(difflib.unified_diff(before, after, *files, lineterm=""))
    return "\n".join(lines) or f"{name} changes nothing in the code"


def _sources(graph: Graph) -> list[str]:
    """Return the source of each generated module, those of models first."""
    from ...codegen.module import lower

    program = lower(graph)
    return [*(inner.source for inner in program.models), program.source]


def recipe(run: Run, graph: Graph, base: Graph | None = None) -> dict[str, Any]:
    """Return the groups of weights of a run with their settings, and all that changes, as JSON.

    Args:
        run: the run.
        graph: graph of its objective.
        base: the graph with the sizes of the base model of its parametrization, if it has one.

    Raises:
        InputError: a selection selects nothing, or the peak of the schedule has no value.
    """
    trained = trained_weights(graph, run.freeze, run.train if run.freeze else ())
    peak = peak_of(run.schedule, deployed_graph(graph).params)
    shapes = graph.root.weights()
    groups = []
    weights = weight_groups(run.optimizer, graph, trained)
    for group in weights if base is None else with_widths(weights, growth(graph, base)):
        options = group.optimizer.model_dump(
            mode="json", by_alias=True, exclude={"type", "groups", "clip"}
        )
        rates = sorted({group.peak(path, peak) for path in group.weights})
        groups.append(
            {
                "select": group.select,
                "type": group.optimizer.type,
                "weights": len(group.weights),
                "parameters": sum(prod(shapes[path]) for path in group.weights),
                "rates": rates,
                "options": options,
            }
        )
    curves: dict[str, Curve] = {"schedule": run.schedule.pieces or 1.0}
    curves |= {"batch.tokens": run.batch.tokens, "accumulate": run.accumulate}
    curves["dropout"] = run.dropout
    curves |= {f"values.{name}": value for name, value in run.values.items()}
    changing = {
        name: [
            {
                "updates": [stretch.after + 1, min(stretch.until, run.updates)],
                "shape": "constant" if stretch.piece.holds else stretch.piece.shape,
                "from": stretch.start,
                "to": stretch.at(min(stretch.until, run.updates)),
            }
            for stretch in stretches(curve, run.updates)
            if stretch.after < min(stretch.until, run.updates)
        ]
        for name, curve in curves.items()
        if isinstance(curve, tuple)
    }
    sources = run.data.train.sources
    return {
        "updates": run.updates,
        "peak": peak,
        "groups": groups,
        "changing": changing,
        "mixture": described(run.data.mixture, sources, run.updates),
    }


def recipe_lines(value: Mapping[str, Any]) -> Iterable[str]:
    """Yield the lines of a recipe, from what `recipe` returns."""
    yield f"recipe: {value['updates']:,} updates"
    others = "all other weights" if len(value["groups"]) > 1 else "all weights"
    for group in value["groups"]:
        options = ", ".join(
            f"{name} {_option(option)}" for name, option in group["options"].items()
        )
        rates = " to ".join(f"{rate:.4g}" for rate in dict.fromkeys(_ends(group["rates"])))
        yield (
            f"  {group['select'] or others}: {group['type']} ({options}),"
            f" {group['weights']:,} weights, {group['parameters']:,} parameters, rate {rates}"
        )
    for name, pieces in value["changing"].items():
        for piece in pieces:
            first, last = piece["updates"]
            how = f"{piece['shape']} {piece['from']:.4g}"
            how += "" if piece["shape"] == "constant" else f" to {piece['to']:.4g}"
            yield f"  {name}: updates {first:,} to {last:,}, {how}"
    for stage in value["mixture"]:
        first, last = stage["updates"]
        weights = ", ".join(f"{name} {weight:g}" for name, weight in stage["weights"].items())
        how = weights or f"temperature {stage['temperature']:g}"
        yield f"  mixture: updates {first:,} to {last:,}, {how}"


def _ends(values: list[float]) -> list[float]:
    return [values[0], values[-1]] if values else []


def _option(value: Any) -> str:
    """Return the value of an option in words."""
    if isinstance(value, list):
        pieces = any(isinstance(entry, dict) for entry in value)
        return "changes" if pieces else " ".join(f"{entry:g}" for entry in value)
    return f"{value:g}" if isinstance(value, float) else str(value).lower()
