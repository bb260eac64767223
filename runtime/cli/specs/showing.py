"""The command `weft show`: the nodes of a spec, the passes of its training, and its code.

It does not load torch.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ....graphs.draw.outline import as_json, render
from ....graphs.ir.graph import Graph
from ....graphs.passes.pipeline import PassName, Settings, Step, pipeline
from ....specs.findings import InputError
from ....specs.form import describes_run
from ....specs.load import load
from ....specs.reader import read_file, shipped_names
from ...spec.check import graph_of
from ..common.command import SPECS, command
from ..common.parameters import RUNS, Json, Overrides, SpecName, overridden

if TYPE_CHECKING:
    from ...train.run import Run


@command(
    SPECS,
    "weft show transformer-tiny",
    "weft show multi30k-en-de --passes",
    "weft show transformer-tiny --code --train --without unpad",
)
def show(
    spec: SpecName,
    *,
    passes: Annotated[
        bool, typer.Option("--passes", help="Print the passes of training, and what each changes.")
    ] = False,
    code: Annotated[
        bool, typer.Option("--code", help="Print the Python that computes the model.")
    ] = False,
    train: Annotated[
        bool, typer.Option("--train", help="With --code: the code after the passes of training.")
    ] = False,
    after: Annotated[
        PassName | None, typer.Option("--after", help="With --passes or --train: stop after this.")
    ] = None,
    without: Annotated[
        list[PassName] | None,
        typer.Option("--without", help="With --passes or --train: leave this pass out."),
    ] = None,
    overrides: Overrides = None,
    json_: Json = False,
) -> None:
    """Print the tree of a spec's nodes, with types and parameters, or how training computes it.

    The passes of a run are those of its settings. Whether "padding": "auto" unpads depends on the
    data; here it does.
    """
    _refuse_idle(passes=passes, code=code, train=train, json_=json_, narrows=bool(after or without))
    graph = graph_to_show(spec, overrides)
    if not (passes or code):
        print(json.dumps(as_json(graph), indent=2) if json_ else render(graph))
        return
    steps = _steps(graph, _settings(spec, overrides), tuple(without or ()), after)
    if passes:
        print(json.dumps(list(map(_as_json, steps)), indent=2) if json_ else _listed(steps))
    else:
        print("\n\n".join(_sources(steps[-1].graph if train and steps else graph)))


def graph_to_show(spec: str, overrides: list[str] | None) -> Graph:
    """Return the graph of a spec; of a run, that of what it trains."""
    found = _run(spec, overrides)
    if found is None:
        return graph_of(load(spec, overridden(overrides)))
    from ...train.objective.planned import graph_of_run

    return graph_of_run(*found)


def _run(spec: str, overrides: list[str] | None) -> tuple[Run, str] | None:
    """Return a run and its file; None for a spec."""
    path = shipped_names(RUNS).get(spec, Path(spec))
    if not path.is_file():
        return None
    value, source = read_file(path)
    if not describes_run(value):
        return None
    from ...train.run import run_of

    return run_of(value, source, overridden(overrides)), source


def _settings(spec: str, overrides: list[str] | None) -> Settings:
    found = _run(spec, overrides)
    if found is None:
        return Settings()
    from ...train.transforms.pass_settings import settings_of_run

    return settings_of_run(found[0], unpad=True)


def _refuse_idle(*, passes: bool, code: bool, train: bool, json_: bool, narrows: bool) -> None:
    """Refuse options that would have no effect.

    Raises:
        InputError: there is one.
    """
    idle = {
        "--train": (train and not code, "add --code"),
        "--after or --without": (narrows and not (passes or train), "add --passes or --train"),
        "--code": (code and passes, "give either --code or --passes"),
        "--json": (json_ and code, "leave it out, or use --passes"),
    }
    for option, (wrong, help_) in idle.items():
        if wrong:
            raise InputError(f"{option} has no effect here", place=option, help=help_)


def _steps(
    graph: Graph, settings: Settings, without: tuple[PassName, ...], after: PassName | None
) -> list[Step]:
    """Return the passes of a graph, up to one of them.

    Raises:
        InputError: the last one is left out.
    """
    if after in without:
        raise InputError(f"the pass '{after}' is left out", place="--after", help="leave it in")
    steps = pipeline(graph, replace(settings, without=without))
    names = [step.name for step in steps]
    return steps[: names.index(after) + 1] if after is not None else steps


def _listed(steps: list[Step]) -> str:
    """Return the passes as text: name, what it does, and what it changed."""
    lines = []
    for number, step in enumerate(steps, 1):
        lines.append(f"{number} {step.name:<11} {step.does}")
        lines += [f"{'':14}{line}" for line in step.changed or ("changes nothing here",)]
    return "\n".join(lines)


def _as_json(step: Step) -> dict[str, Any]:
    return {"pass": step.name, "does": step.does, "changed": list(step.changed)}


def _sources(graph: Graph) -> list[str]:
    """Return the source of each generated module, those of models first."""
    from ...codegen.module import lower

    program = lower(graph)
    return [*(inner.source for inner in program.models), program.source]
