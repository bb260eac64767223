"""Pipelines: the passes over the graph that trains, decodes or is exported, in their order.

Each pass returns a graph with the same weights and the same results, up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from ..ir.execution import (
    PLAIN,
    Execution,
    KernelChoice,
    LowPrecision,
    Precision,
    Prepacked,
    WeightCasts,
)
from ..ir.graph import Graph, Part, RepeatNode, Scope, TemplateNode
from ..ir.traverse import moving_ports, moving_values, root_moving, visits
from .fuse import head_of
from .merge import merged_nodes
from .unpad import unpad, unpad_decoding


def cast_weights(graph: Graph, dtype: LowPrecision) -> Graph:
    """Return a graph whose products read weights that are cast once an update, in training.

    If FSDP shards the weights, it casts its shards, and no other copies are made.

    Args:
        graph: a checked graph, after the pass `parallel`.
        dtype: dtype of the products: the one that the training gives to autocast.
    """
    plan = graph.execution.parallel
    sharded = plan is not None and plan.data == "fsdp"
    casts = WeightCasts(dtype, "fsdp" if sharded else "copies")
    return replace(graph, execution=replace(graph.execution, casts=casts))


def onnx_forms(graph: Graph) -> Graph:
    """Return a graph whose blocks have the forms that the ONNX exporter can follow.

    Args:
        graph: a checked graph.
    """
    forms = {
        visit.module: visit.part.block.onnx_form
        for visit in visits(graph.root, "weights")
        if isinstance(visit.part, Part) and visit.part.block.onnx_form
    }
    return replace(graph, execution=replace(graph.execution, forms=forms))


def shortlist(graph: Graph, output: str = "logits") -> Graph:
    """Return a graph whose steps compute only the logits that a batch may need.

    Args:
        graph: a checked graph of a model that decodes; one whose logits are not those of a linear
            map (`head_of`) stays as it is.
        output: the output with the logits.
    """
    head = head_of(graph, output) if graph.step_axis is not None else None
    if head is None:
        return graph
    return replace(graph, execution=replace(graph.execution, shortlisted=head))


def prepack(graph: Graph, dtype: Prepacked | None) -> Graph:
    """Return a graph whose linear maps have prepacked matrices; None packs none.

    Args:
        graph: a checked graph of a model that decodes.
        dtype: dtype of the products.
    """
    return replace(graph, execution=replace(graph.execution, prepacked=dtype))


def quantize(graph: Graph, dtype: Prepacked | None) -> Graph:
    """Return a graph whose large linear maps multiply in int8; with None, none does.

    Args:
        graph: a checked graph of a model that decodes.
        dtype: dtype of the outputs of these maps.
    """
    return replace(graph, execution=replace(graph.execution, quantized=dtype))


def compile_steps(graph: Graph) -> Graph:
    """Return a graph whose repeated layers have compiled steps, or itself if nothing is repeated.

    Args:
        graph: a checked graph of a model that decodes; one that does not stays as it is.  So does
            one without a repeat and with a shortlist: its step would be compiled for each batch.
    """
    if graph.step_axis is None:
        return graph
    paths = frozenset(_layers(graph.root, root_moving(graph))) or frozenset([""])
    if "" in paths and graph.execution.shortlisted:
        return graph
    return replace(graph, execution=replace(graph.execution, compiled=paths))


def _layers(scope: Scope, moving_in: frozenset[str], above: str = "") -> Iterator[str]:
    """Yield the paths of the outermost copies of repeats that run at every step."""
    moving = moving_values(scope, moving_in)
    for node in scope.nodes:
        ports = moving_ports(node, moving)
        if node.shares or not ports:
            continue
        if isinstance(node, RepeatNode):
            yield from (f"{above}{node.name}.{copy}".rstrip(".") for copy, _ in node.owners())
        elif isinstance(node, TemplateNode):
            yield from _layers(node.body, ports, f"{above}{node.name}.")


Purpose = Literal["train", "decode", "export"]
"""What a graph is computed for."""
PassName = Literal[
    "merge",
    "unpad",
    "fuse",
    "checkpoint",
    "kernels",
    "parallel",
    "casts",
    "shortlist",
    "quantize",
    "prepack",
    "compile",
    "forms",
]
"""Name of a pass."""
NAMES: Mapping[Purpose, tuple[PassName, ...]] = {
    "train": ("merge", "unpad", "fuse", "checkpoint", "kernels", "parallel", "casts"),
    "decode": ("merge", "unpad", "kernels", "shortlist", "quantize", "prepack", "compile"),
    "export": ("merge", "forms"),
}
"""The passes of each purpose, in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodePasses:
    """What the passes of decoding change; by default, nothing."""

    unpad: bool = False
    """Whether decoding begins without the padding of its inputs."""
    shortlisted: bool = False
    """Whether its steps compute only the logits that a batch may need."""
    quantized: Prepacked | None = None
    """Dtype of the outputs of linear maps if the large ones multiply in int8."""
    prepacked: Prepacked | None = None
    """Dtype of the products of linear maps if their matrices are prepacked."""
    compiled: bool = False
    """Whether its steps can be compiled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassSettings:
    """Settings of the passes."""

    purpose: Purpose = "train"
    """What the graph is computed for."""

    unpad: bool = True
    """Whether models that can be unpadded are, in training."""
    strict: bool = False
    """Whether a model that cannot be unpadded is an error."""
    activation_checkpointing: tuple[str, ...] = ()
    """Selections of modules whose activations the backward pass computes again."""
    kernels: KernelChoice | None = None
    """The kernels that were chosen, for example by a measurement; None for the default ones."""
    processes: int = 1
    """Number of processes that train."""
    data: Literal["auto", "ddp", "fsdp"] = "auto"
    """How groups of processes that read different batches share the weights."""
    tensor: int = 1
    """Number of processes in a group, which partitions blocks."""
    precision: Precision = "float32"
    """Dtype of the products of a training; below float32, weights are cast once an update."""
    decode: DecodePasses = DecodePasses()
    """What the passes of decoding change."""
    without: Collection[PassName] = ()
    """Passes to leave out."""


@dataclass(frozen=True, slots=True)
class PassStep:
    """One pass of a pipeline."""

    name: PassName
    does: str
    """What it does, for any graph."""
    graph: Graph
    """The graph after it."""
    changed: tuple[str, ...]
    """What it changed in this graph; empty if nothing."""


def pipeline(graph: Graph, settings: PassSettings, last: PassName | None = None) -> list[PassStep]:
    """Run the passes over a graph.

    Args:
        graph: a checked graph: an objective, or a model.
        settings: settings of the passes.
        last: the last pass to run, one of `NAMES` for the purpose; None to run all.

    Returns:
        One step for each pass that is not left out.

    Raises:
        InputError: a selection is wrong, or `strict` is set and a model cannot be unpadded.
    """
    steps: list[PassStep] = []
    names = NAMES[settings.purpose]
    graph = one_by_one(graph)
    if graph.segments is not None:  # its models run as steps, and only these two apply
        settings = replace(settings, without={*settings.without, *names} - {"merge", "kernels"})
    for name in names if last is None else names[: names.index(last) + 1]:
        if name not in settings.without:
            graph_pass = _PASSES[name]
            graph = graph_pass.change(graph, settings)
            steps.append(PassStep(name, graph_pass.does, graph, tuple(graph_pass.tell(graph))))
    return steps


def after(graph: Graph, settings: PassSettings, last: PassName | None = None) -> Graph:
    """Return the graph after its passes; arguments as of `pipeline`."""
    steps = pipeline(graph, settings, last)
    return steps[-1].graph if steps else graph


def one_by_one(graph: Graph) -> Graph:
    """Return a graph whose nodes are computed one by one, also those of models inside it."""
    return _with_merges(graph, merges=False)


def _with_merges(graph: Graph, *, merges: bool) -> Graph:
    models = dict(graph.execution.models)
    for node, _ in graph.models():
        models[node.name] = replace(models.get(node.name, PLAIN), merges=merges)
    changed = {name: execution for name, execution in models.items() if execution != PLAIN}
    return replace(graph, execution=replace(graph.execution, merges=merges, models=changed))


def _merging(graph: Graph) -> list[str]:
    lines = (f"{path} computes {', '.join(names)}" for path, names in merged_nodes(graph))
    return list(lines)


def _unpad(graph: Graph, settings: PassSettings) -> Graph:
    if settings.purpose == "decode":
        return unpad_decoding(graph) if settings.decode.unpad else graph
    return unpad(graph, strict=settings.strict) if settings.unpad else graph


def _unpadded(graph: Graph) -> list[str]:
    lines = []
    for name, execution in _executions(graph).items():
        if (plan := execution.unpad) is None:
            continue
        if execution.decoding:
            cached_axes = sorted({location.axis for location in plan.cached.values()})
            lines.append(f"{' and '.join(cached_axes)} of {name}, where decoding begins")
        else:
            padded = [path for path, around in plan.blocks.items() if not around.inside]
            axes = f"{' and '.join(plan.axes)} of {name}"
            lines.append(f"{axes}; padded for {', '.join(padded)}" if padded else axes)
            lines += [f"{axis} of {name} stays padded: {why}" for axis, why in plan.padded.items()]
    return lines


def _fuse(graph: Graph, _: PassSettings) -> Graph:
    from .fuse import fuse, is_fusible  # noqa: PLC0415 - for training

    return fuse(graph) if is_fusible(graph) else graph


def _fused(graph: Graph) -> list[str]:
    execution = graph.execution
    lines = [
        f"{loss} computes {linear.path(linear.node)}" for loss, linear in execution.fused.items()
    ]
    for group in execution.groups:
        maps = ", ".join(linear.path(linear.node) for linear in group.maps)
        verb = "computes" if len(group.losses) == 1 else "compute"
        lines.append(f"{', '.join(group.losses)} {verb} {maps}")
    return lines


def _checkpoint(graph: Graph, settings: PassSettings) -> Graph:
    from .checkpoint import checkpoint_activations  # noqa: PLC0415 - for training

    return checkpoint_activations(graph, settings.activation_checkpointing)


def _checkpointed(graph: Graph) -> list[str]:
    from .checkpoint import checkpointed  # noqa: PLC0415 - for training

    paths = checkpointed(graph)
    return [f"{len(paths)} modules, from {paths[0]}"] if paths else []


def _kernels(graph: Graph, settings: PassSettings) -> Graph:
    return replace(graph, execution=replace(graph.execution, kernels=settings.kernels))


def _chosen(graph: Graph) -> list[str]:
    kernels = graph.execution.kernels
    return [] if kernels is None else [str(kernels)]


def _parallel(graph: Graph, settings: PassSettings) -> Graph:
    from .parallel import parallelize  # noqa: PLC0415 - for training

    return parallelize(
        graph, data=settings.data, tensor=settings.tensor, processes=settings.processes
    )


def _planned(graph: Graph) -> list[str]:
    plan = graph.execution.parallel
    if plan is None:
        return []
    lines = ["ddp: every process has all weights"] if plan.data == "ddp" else []
    if plan.data == "fsdp":
        first = f" separately, from {plan.sharded[0]}" if plan.sharded else ""
        lines.append(f"fsdp shards {len(plan.sharded)} layers{first}")
    if plan.blocks:
        lines.append(f"{len(plan.blocks)} blocks are partitioned, from {next(iter(plan.blocks))}")
    return lines


def _cast(graph: Graph, settings: PassSettings) -> Graph:
    return graph if settings.precision == "float32" else cast_weights(graph, settings.precision)


def _casting(graph: Graph) -> list[str]:
    casts = graph.execution.casts
    if casts is None:
        return []
    if casts.by == "fsdp":
        return [f"fsdp gathers weights in {casts.dtype}, and sums gradients in float32"]
    return [f"products read {casts.dtype} copies of their weights"]


def _prepacked(graph: Graph) -> list[str]:
    dtype = graph.execution.prepacked
    return [] if dtype is None else [f"linear maps multiply in {dtype}"]


def _shortlisted(graph: Graph) -> list[str]:
    head = graph.execution.shortlisted
    return [f"{head} computes the logits of the pieces that a batch may need"] if head else []


def _quantized(graph: Graph) -> list[str]:
    dtype = graph.execution.quantized
    if dtype is None:
        return []
    return [f"large linear maps multiply in int8; small ones and everything else in {dtype}"]


def _compiled(graph: Graph) -> list[str]:
    paths = sorted(graph.execution.compiled)
    if paths == [""]:
        return [f"the step of {graph.name}"]
    return [f"the steps of {len(paths)} layers, from {paths[0]}"] if paths else []


def _formed(graph: Graph) -> list[str]:
    return [f"{path}: {form.partition('=')[2]}" for path, form in graph.execution.forms.items()]


def _executions(graph: Graph) -> dict[str, Execution]:
    """Return the executions of a graph and of the models inside it, by name."""
    return {graph.name: graph.execution, **graph.execution.models}


class _Pass(NamedTuple):
    """One pass."""

    does: str
    """What it does, for any graph."""
    change: Callable[[Graph, PassSettings], Graph]
    """The pass itself."""
    tell: Callable[[Graph], list[str]]
    """Returns what it changed in a graph."""


_PASSES: Mapping[PassName, _Pass] = {
    "merge": _Pass(
        "let one kernel compute the nodes of attention that is written out",
        lambda graph, _: _with_merges(graph, merges=True),
        _merging,
    ),
    "unpad": _Pass("compute non-padding tokens only", _unpad, _unpadded),
    "fuse": _Pass(
        "let losses compute the linear maps that they read",
        _fuse,
        _fused,
    ),
    "checkpoint": _Pass(
        "compute activations again in the backward pass",
        _checkpoint,
        _checkpointed,
    ),
    "kernels": _Pass("use the kernels that were chosen", _kernels, _chosen),
    "parallel": _Pass("spread the weights over the processes of a training", _parallel, _planned),
    "casts": _Pass(
        "cast weights to a lower precision once an update, not in every product",
        _cast,
        _casting,
    ),
    "shortlist": _Pass(
        "compute the logits of likely pieces only",
        lambda graph, settings: shortlist(graph) if settings.decode.shortlisted else graph,
        _shortlisted,
    ),
    "quantize": _Pass(
        "round the matrices and the inputs of large linear maps to int8",
        lambda graph, settings: quantize(graph, settings.decode.quantized),
        _quantized,
    ),
    "prepack": _Pass(
        "reorder the matrices of linear maps once, before the first step",
        lambda graph, settings: prepack(graph, settings.decode.prepacked),
        _prepacked,
    ),
    "compile": _Pass(
        "compile the steps of repeated layers, where a measurement shows that it pays",
        lambda graph, settings: compile_steps(graph) if settings.decode.compiled else graph,
        _compiled,
    ),
    "forms": _Pass(
        "use forms of blocks that torch's exporter to ONNX can follow",
        lambda graph, _: onnx_forms(graph),
        _formed,
    ),
}
