"""Whether the objective of a run fits the settings of the run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import get_args

from ....blocks.registry import registry
from ....graphs.ir.graph import Graph, Part
from ....graphs.ir.traverse import fixed_weights, position_limits, root_moving, visits, written_ids
from ....graphs.passes.feeding import fed_by, unfed
from ....graphs.passes.freeze import chosen, selected_weights, trained_weights
from ....graphs.passes.fuse import is_fusible
from ....graphs.passes.merge import merged_nodes
from ....graphs.passes.objective import (
    deployed_graph,
    feeds_of,
    read_texts,
    source_among,
)
from ....graphs.passes.parallel import divided_blocks
from ....graphs.passes.widths import growth, wider_heads
from ....graphs.passes.writing import written_before
from ....specs.findings import Finding, InputError, did_you_mean, pointer
from ...data.columns.column_settings import TextSettings
from ...decode.predictors.classify import Tags
from ...decode.predictors.predictor import PredictorSettings
from ...decode.predictors.search import MaskPredict
from ...decode.settings import Writing
from ..objective import Objective
from ..recipe.groups import wrong_groups
from ..recipe.schedule import peak_of
from ..run import LeftOut, Run
from .batches import stays_padded, unfit_count
from .effects import changed, longest_text, special_tokens, unused
from .metrics import metric_places, unknown_losses

_TAKEN = frozenset(
    {"auxiliary", "data_wait_share", "epoch", "mfu", "rate", "seconds", "tokens_per_second"}
) | {"answers", "samples", "type", "update"}
"""Values that the history of a run has besides losses and scores."""

_READERS: dict[str, tuple[LeftOut, ...]] = {
    "product": ("kernels",),
    "attention": ("kernels",),
    "loss": ("kernels", "fuse"),
}
"""Setting of `kernels` to the passes that use it."""


MOST_WEIGHTS = 100_000
"""Maximum number of weights that train; what is checked for each of them stays below a second."""


def too_many_weights(graph: Graph) -> Iterator[Finding]:
    """Yield a finding if a graph has so many weights that checking each would take seconds."""
    count = sum(
        visit.sets * len(visit.part.own_weights())
        for visit in visits(graph.root)
        if isinstance(visit.part, Part)
    )
    if count > MOST_WEIGHTS:
        yield Finding(
            code="R04",
            at="/objective",
            problem=f"'{graph.name}' has {count:,} weights, but a run trains at most"
            f" {MOST_WEIGHTS:,}",
            help="use fewer layers, or blocks with fewer weights",
        )


def objective_fits(run: Run, graph: Graph) -> Iterator[Finding]:
    """Yield a finding for each thing that the objective and the run require of each other."""
    yield from _names(graph)
    yield from _trains(graph)
    yield from _selections(run, graph)
    yield from _limits(run, graph)
    yield from unfit_count(run, graph)
    yield from _partition(run, graph)
    yield from _model_settings(run, graph)
    yield from _left_out(run, graph)
    yield from _segments(run, graph)
    yield from _searched_source(run, graph)
    yield from _predicts(run, graph)
    yield from unknown_losses(graph, metric_places(run))


def _names(graph: Graph) -> Iterator[Finding]:
    """Yield a finding for each output whose name means something else in the history of a run."""
    for name in graph.outputs:
        if name in _TAKEN:
            yield Finding(
                code="R04",
                at="/objective",
                problem=f"'{graph.name}' has an output '{name}', but in the history of a run this"
                " name means another value",
                help="rename the output, for example after its node",
            )


def _trains(graph: Graph) -> Iterator[Finding]:
    """Yield a finding if there is nothing to train, or nothing to keep."""
    if not graph.losses:
        yield Finding(
            code="R04",
            at="/objective",
            problem=f"'{graph.name}' has no output of kind 'loss', so it cannot train",
            help="name an objective, or add a loss to its outputs",
        )
    if graph.deploy is None:
        yield Finding(
            code="R04",
            at="/objective",
            problem=f"'{graph.name}' does not say which model training leaves behind",
            help='add "deploy" with the name of the node that contains it',
        )


def _selections(run: Run, graph: Graph) -> Iterator[Finding]:
    """Yield a finding for each selection that selects nothing, or if no weight trains."""
    texts = run.activation_checkpointing
    selections = [
        (pointer("activation_checkpointing", *([] if isinstance(texts, str) else [number])), text)
        for number, text in enumerate((texts,) if isinstance(texts, str) else texts)
    ]
    wrong = [*_wrong(selections, lambda text: chosen(graph, text))]
    freeze = [(pointer("freeze", number), text) for number, text in enumerate(run.freeze)]
    frozen = [*_wrong(freeze, lambda text: selected_weights(graph, text))]
    if run.freeze and not frozen:
        train = [(pointer("train", number), text) for number, text in enumerate(run.train)]
        frozen += _wrong(train, lambda text: trained_weights(graph, run.freeze, (text,)))
    yield from (*wrong, *frozen)
    if frozen:
        return
    trained = trained_weights(graph, run.freeze, run.train if run.freeze else ())
    weights = graph.root.weights()
    if weights and not trained:
        by_run = bool(run.freeze) and not fixed_weights(graph).keys() >= weights.keys()
        yield Finding(
            code="R04",
            at="/freeze" if by_run else "/objective",
            problem=f"all weights of '{graph.name}' are frozen, so nothing trains"
            if by_run
            else f"rules of 'init' freeze all weights of '{graph.name}', so nothing trains",
            help="freeze fewer parts, or name weights that train in 'train'"
            if by_run
            else "freeze fewer weights",
        )
    else:
        yield from wrong_groups(run.optimizer, graph, trained)


def _wrong(
    selections: Iterable[tuple[str, str]], select: Callable[[str], object]
) -> Iterator[Finding]:
    """Yield a finding for each selection, given with its place, that selects nothing."""
    for at, text in selections:
        try:
            select(text)
        except InputError as error:
            yield Finding(code="R03", at=at, problem=error.problem, help=error.help)


def _limits(run: Run, graph: Graph) -> Iterator[Finding]:
    """Yield a finding for each limit of length that contradicts the filter."""
    longest, extra = longest_text(run), special_tokens(run)
    if longest is None:
        return
    most = min(position_limits(graph), default=None)
    if most is not None and longest > most:
        yield Finding(
            code="R04",
            at="/data/filter/max_length",
            problem=f"texts may have {longest} tokens, special tokens included, but"
            f" '{graph.name}' has {most} positions",
            help=f"set data.filter.max_length to {most - extra}, or give the model more positions"
            if most > extra
            else "give the model more positions",
        )
    if longest > (least := run.token_range()[0]) > 1:
        yield Finding(
            code="R04",
            at="/batch/tokens",
            problem=f"a batch has {least} tokens, but a text may have {longest},"
            " special tokens included",
            help=f"set it to at least {longest}"
            + (f", or data.filter.max_length to {least - extra}" if least > extra else ""),
        )


def _partition(run: Run, graph: Graph) -> Iterator[Finding]:
    """Yield a finding if no block can be partitioned as the run requests."""
    if run.parallel.tensor == 1:
        return
    partition = divided_blocks(graph, run.parallel.tensor)
    if not partition.blocks:
        yield Finding(
            code="R04",
            at="/parallel/tensor",
            problem=f"no block of '{graph.name}' can be partitioned over {run.parallel.tensor}",
            evidence=tuple(f"{path}: {why}" for path, why in list(partition.undivided.items())[:1]),
            help="set it to a number that divides its heads and d_ff, or to 1",
        )


def _model_settings(run: Run, graph: Graph) -> Iterator[Finding]:
    """Yield a finding for each setting that the models cannot fulfill or do not read."""
    if changed(run, "auxiliary") and not graph.root.unwired_losses():
        problem = f"the models of '{graph.name}' have no loss that the objective leaves unwired"
        yield unused("/auxiliary", problem, "remove it")
    if run.padding == "unpadded" and (why := stays_padded(graph)):
        yield Finding(code="R04", at="/padding", problem=why, help="set it to 'auto', or remove it")
    parts = (visit.part for visit in visits(graph.root))
    if changed(run, "dropout") and not any(isinstance(part, Part) and part.drops for part in parts):
        problem = f"'{graph.name}' has no dropout with these params"
        yield unused("/dropout", problem, "remove it, or set the params of dropout")
    try:
        peak_of(run.schedule, deployed_graph(graph).params)
    except InputError as error:
        yield Finding(code="R04", at=error.location, problem=error.problem, help=error.help)


def _left_out(run: Run, graph: Graph) -> Iterator[Finding]:
    """Yield a finding for each pass to leave out that would not run or that a setting needs."""
    idle: dict[str, str] = {}
    if graph.segments is not None:
        why = f"the models of '{graph.name}' run as steps"
        idle = dict.fromkeys(get_args(LeftOut), why)
        del idle["kernels"], idle["unpad"], idle["merge"]
    elif run.without:
        if not is_fusible(graph):
            idle["fuse"] = f"no loss of '{graph.name}' reads a linear map that only losses read"
        if run.precision == "float32":
            idle["casts"] = "'precision' is 'float32'"
    if run.without and not merged_nodes(graph):
        idle["merge"] = f"no attention in '{graph.name}' is written out from nodes"
    running = ", ".join(name for name in get_args(LeftOut) if name not in idle)
    for number, name in enumerate(run.without):
        if name in idle:
            problem = f"the pass '{name}' would not run: {idle[name]}"
            at = pointer("without", number)
            yield unused(at, problem, f"remove it; passes that can be left out here: {running}")
    if "unpad" in run.without and run.padding == "unpadded":
        yield Finding(
            code="R04",
            at="/padding",
            problem="'unpadded' needs the pass 'unpad', which 'without' leaves out",
            help="set it to 'auto', or leave 'unpad' in",
        )
    for key, readers in _READERS.items():
        missing = [reader for reader in readers if reader in run.without]
        if missing and changed(run.kernels, key):
            problem = f"the pass '{missing[0]}', which uses it, is left out"
            yield unused(pointer("kernels", key), problem, f"remove it, or leave '{missing[0]}' in")


def _segments(run: Run, graph: Graph) -> Iterator[Finding]:
    """Yield a finding for each setting that does not fit how documents are divided."""
    texts = {
        n: column for n, column in run.data.columns.items() if isinstance(column, TextSettings)
    }
    cut = {name: column.segment for name, column in texts.items() if column.segment is not None}
    if graph.segments is None:
        for name in cut:
            problem = f"'{graph.name}' has no 'segments', so it reads each row on its own"
            help_ = "remove it, or name an objective with 'segments'"
            yield unused(pointer("data", "columns", name, "segment"), problem, help_)
        return
    if not cut:
        yield Finding(
            code="R04",
            at="/data/columns",
            problem=f"'{graph.name}' has 'segments', but no column cuts its texts into segments",
            help="set 'segment' of the text column to the number of tokens of a row",
        )
    for name, size in cut.items():
        least, most = run.token_range()
        if size > least:
            yield Finding(
                code="R04",
                at="/batch/tokens",
                problem=f"a batch has {least} tokens, but a segment of '{name}' {size}",
                help=f"set it to a multiple of {size}",
            )
        if least != most:
            yield Finding(
                code="R04",
                at="/batch/tokens",
                problem=f"the limit of a batch changes from {least} to {most} tokens, but segments"
                f" of '{name}' continue from batch to batch",
                help="write one number of tokens",
            )
    refused = {
        "/padding": run.padding == "unpadded",
        "/activation_checkpointing": bool(run.activation_checkpointing),
        "/compile": run.compile == "layers",
        "/checkpoint/sharded": run.checkpoint.sharded,
        "/parallel/tensor": run.parallel.tensor > 1,
        "/parallel/processes": (run.parallel.processes or 1) > 1,
    }
    for at, wrong in refused.items():
        if wrong:
            yield Finding(
                code="R04",
                at=at,
                problem=f"an objective with 'segments', such as '{graph.name}', cannot have it",
                help="remove it",
            )


def _predicts(run: Run, graph: Graph) -> Iterator[Finding]:
    """Yield a finding for each input of the model that the predictor of a run cannot fill."""
    settings = run.predict
    if settings is None or graph.deploy is None or not settings.reads:
        return
    model = deployed_graph(graph)
    moving = root_moving(model) if model.step_axis is not None else frozenset()
    ports = set(model.inputs)
    drafts = getattr(settings, "drafts", ())
    try:
        written = written_before(
            model, [(draft.input, draft.output) for draft in drafts], registry(model.blocks)
        )
    except InputError as error:
        yield Finding(
            code="R04",
            at="/predict/drafts",
            problem=error.problem,
            evidence=(f"'{model.name}' at {error.location}",),
            help=error.help,
        )
        return
    ports -= {name for port, part in written.items() for name in (port, *part.masks)}
    if settings.reads == "fixed":
        ports -= moving
        answer = written_ids(
            model, [p for p, name in feeds_of(graph).items() if name == run.answers]
        )
        for port in sorted(moving - {answer}):
            if model.inputs[port].kind != "mask":
                yield Finding(
                    code="R04",
                    at="/predict",
                    problem=f"the predictor '{settings.type}' cannot fill the input '{port}' of"
                    f" '{model.name}', because it has a value for each token that is written",
                    help="compute it from the written tokens in the model, or remove 'predict'",
                )
    yield from _named_outputs(settings, model)
    refused = unfed(graph, sorted(ports)).values()
    if not refused and isinstance(settings, Tags):
        yield from _tagged_words(run, settings, fed_by(graph, ports))
    for unfed_input in refused:
        yield Finding(
            code="R04",
            at="/predict",
            problem=unfed_input.problem,
            evidence=(f"the wires of '{graph.name}' at {unfed_input.location}",),
            help=f"{unfed_input.help}, or remove 'predict'",
        )


def _named_outputs(settings: PredictorSettings, model: Graph) -> Iterator[Finding]:
    """Yield a finding for each setting of a predictor that names no output of the model."""
    for key in settings.outputs:
        name = getattr(settings, key)
        if name is not None and name not in model.outputs:
            yield Finding(
                code="R04",
                at=pointer("predict", key),
                problem=f"the predictor '{settings.type}' needs an output '{name}', and"
                f" '{model.name}' has none of this name",
                help=did_you_mean(name, model.outputs),
            )


def _tagged_words(run: Run, settings: Tags, fed: Collection[str]) -> Iterator[Finding]:
    """Yield a finding if it is not clear which column has the words of the tags."""
    columns = [name for name in run.data.columns if name in fed]
    if settings.words is None and len(columns) > 1:
        names = ", ".join(f"'{name}'" for name in columns)
        yield Finding(
            code="R04",
            at="/predict",
            problem=f"the predictor 'tags' reads the columns {names}, and does not know which of"
            " them has the words",
            help="set 'words' to its name",
        )
    elif settings.words is not None and settings.words not in columns:
        yield Finding(
            code="R04",
            at="/predict/words",
            problem=f"the model does not read the column '{settings.words}'",
            help=did_you_mean(settings.words, columns) or "remove it",
        )


def _searched_source(run: Run, graph: Graph) -> Iterator[Finding]:
    """Yield a finding for each special token of a source that a search would not read."""
    if graph.deploy is None or not isinstance(run.predict, Writing | MaskPredict):
        return
    columns = run.data.columns
    read = read_texts(graph).values()
    texts = [name for name in read if isinstance(columns.get(name), TextSettings)]
    texts = [name for name in texts if name != run.answers] or texts
    name = source_among(texts)
    source = columns.get(str(name))
    if name is None or not isinstance(source, TextSettings):
        return
    for key, wrong in (("begin", source.begin), ("end", not source.end)):
        if wrong:
            yield Finding(
                code="R04",
                at=pointer("data", "columns", name, key),
                problem=f"the predictor '{run.predict.type}' reads a source with the end token and"
                " without the begin token, so the model would not translate what it was trained on",
                help="remove it",
            )


SHOWN = 3
"""Parts that a finding names."""


def wrong_parametrization(run: Run, objective: Objective) -> Iterator[Finding]:
    """Yield a finding about a base model that there is not, or that does not fit the run."""
    if run.parametrization is None:
        return
    at = "/parametrization/mup/base"
    try:
        base = objective.base(run.parametrization.mup.base)
        growth(objective.graph, base)
    except InputError as error:
        yield Finding(
            code="R04",
            at=f"{at}{error.location}",
            problem=error.problem,
            help=error.help,
        )
        return
    heads = list(wider_heads(objective.graph, base))
    if heads:
        yield Finding(
            code="R04",
            level="warning",
            at=at,
            problem="heads are wider than in the base model, so that scores grow with them",
            evidence=tuple(heads[:SHOWN]),
            help="let the number of heads grow with the width, or give the base its 'heads'",
        )
