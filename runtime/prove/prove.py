"""`prove`, which tests the properties that a spec and its blocks must have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import get_args

from ...graphs.ir.block_type import BlockType
from ...graphs.ir.graph import Graph
from ...specs.findings import InputError, did_you_mean
from ..codegen.examples import example_inputs, sizes_for
from ..spec.check import Source, graph_of
from ..train.run import Run
from .forms import compiled, saved, unpadded
from .gradients import gradients
from .invariance import causality, padding
from .predictions import predictions, run_named
from .report import PROPERTIES, Name, Proof, Property
from .steps import steps
from .subject import BlockError, Subject, in_float64, random_model, refuse_large

BATCH, LENGTH = 2, 7
"""Default size of batch axes, and of the first axis; later ones are longer."""
MANY = 50_000_000
"""Parameters from which all properties together take minutes."""
TOLERANCE = 1e-6
"""Blocks may compute in float32 inside; a fault is larger by orders of magnitude."""
_TESTS: Mapping[Name, Callable[[Subject], Property]] = {
    "steps": steps,
    "causality": causality,
    "padding": padding,
    "compiled": compiled,
    "unpadded": unpadded,
    "saved": saved,
    "gradients": gradients,
}


def prove(  # noqa: PLR0913 - all by name but one
    spec: Source | Graph,
    *,
    sizes: Mapping[str, int] | None = None,
    seed: int = 1,
    only: Iterable[str] = (),
    skip: Iterable[str] = (),
    tolerance: float = TOLERANCE,
    blocks: Iterable[BlockType] = (),
    run: Run | None = None,
    progress: Callable[[str], None] | None = None,
) -> Proof:
    """Test the properties of a spec and its blocks, on random weights and inputs.

    The model is built in float64 on the CPU.  A failed property names the output, the position and
    the first node that differs.  Like every test on examples, this finds faults; it cannot exclude
    faults that only other sizes or values show.

    Args:
        spec: the result of `load`, a path, or a shipped name; of a run, its objective is tested.
        sizes: sizes of the spec's axes; default: 2 for batch axes, and a different length of at
            least 7 for every other axis.
        seed: seed of the weights and the inputs.
        only: names of the properties to test; default: all.
        skip: names of the properties not to test; `compiled` takes longest.
        tolerance: largest difference that passes, relative to the largest expected value, or
            absolute if that is below 1; many blocks that compute in float32 inside may need 1e-4.
        blocks: block types that the spec may use besides the installed ones.
        run: the run whose objective the spec is, if it is not given as a path or a name.
        progress: called with a line of text before each property.

    Returns:
        The outcome for each property: passed, failed, or does not apply, with the reason.

    Raises:
        InputError: a property or an axis is unknown, the model does not fit into memory, or its
            forward pass fails at these sizes or gives no finite value.
        SpecError: the spec has errors; all of them are listed.
    """
    names = _chosen(_listed(only), _listed(skip))
    if not tolerance > 0:
        raise InputError(f"the tolerance is {tolerance}, not above 0", location="tolerance")
    run_and_graph = run_named(spec) if run is None else None
    run, graph = (run, graph_of(spec, blocks)) if run_and_graph is None else run_and_graph
    axis_sizes = sizes_for(graph, batch=BATCH, length=LENGTH) | dict(sizes or {})
    if sizes:
        example_inputs(graph, sizes)  # refuses unknown axes and wrong sizes
    refuse_large(graph, axis_sizes)
    if progress is not None and graph.parameters() > MANY:
        progress(f"{graph.parameters():,} parameters take minutes; --set makes the model smaller")
    with in_float64():
        subject = Subject(graph, random_model(graph, seed), axis_sizes, seed, tolerance)
        _refuse_failing(subject)
        properties = []
        for name in names:
            if name == "predictions":  # like training, in float32
                continue
            if progress is not None:
                progress(f"{name}: {PROPERTIES[name]}")
            properties.append(_tested(name, subject))
    if "predictions" in names:
        if progress is not None:
            progress(f"predictions: {PROPERTIES['predictions']}")
        properties.append(predictions(run, graph, seed))
    return Proof(
        spec=graph.name,
        parameters=graph.parameters(),
        sizes=axis_sizes,
        seed=seed,
        properties=tuple(properties),
        skipped=tuple(name for name in PROPERTIES if name not in names),
    )


def _listed(names: Iterable[str]) -> list[str]:
    """Return names as a list; a single name may be a text."""
    return [names] if isinstance(names, str) else list(names)


def _chosen(only: list[str], skip: list[str]) -> list[Name]:
    """Return the properties to test, in order.

    Raises:
        InputError: a property is unknown, or none is left.
    """
    for option, selected in (("only", only), ("skip", skip)):
        for name in selected:
            if name not in PROPERTIES:
                help_ = did_you_mean(name, PROPERTIES)
                raise InputError(f"no property '{name}'", location=option, help=help_)
    names: list[Name] = [
        name for name in get_args(Name) if (not only or name in only) and name not in skip
    ]
    if not names:
        raise InputError("no property is left to test", location="skip", help="remove a name")
    return names


def _tested(name: Name, subject: Subject) -> Property:
    """Return the outcome for one property; an exception of a block is a failure."""
    try:
        return _TESTS[name](subject)
    except BlockError as error:
        return Property(name=name, outcome="failed", detail=str(error))


def _refuse_failing(subject: Subject) -> None:
    """Check that the model runs at all.

    Raises:
        InputError: its forward pass fails, or an output is NaN or infinite everywhere.
    """
    inputs = example_inputs(subject.graph, subject.sizes, seed=subject.seed, padding=False)
    sizes = " ".join(f"{axis}={size}" for axis, size in subject.sizes.items())
    try:
        outputs = subject.run(inputs, f"the forward pass of {subject.graph.name} at {sizes}")
    except BlockError as error:
        raise InputError(
            str(error),
            location=subject.graph.source,
            help="if these sizes are too small or too large for the model, set others with --axes"
            " (in Python: sizes=)",
        ) from error
    for port, value in outputs.items():
        if value.numel() and not value.isfinite().any():
            raise InputError(
                f"output {port} of {subject.graph.name} has no finite value with random weights",
                location=subject.graph.source,
                help="initialize the weights of each block in its method 'initialize'",
            )
