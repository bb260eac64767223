"""Registry of the tasks that a run can select."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...specs.findings import InputError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ...graphs.ir.graph import Graph
    from ..data.prepare import Prepared
    from ..data.settings import TokenizerSettings
    from ..data.symbols import Vocabulary
    from ..data.treebank.pairs import Reading
    from ..train.run import Run
    from .parsing.task import Parsing
    from .translation import Translation


def _translation() -> type[Translation]:
    from .translation import Translation

    return Translation


def _mask_predict() -> type[Translation]:
    from .mask_predict import MaskPredict

    return MaskPredict


def _sequence() -> type[Parsing]:
    from .parsing.task import Parsing

    return Parsing


def _chart() -> type[Parsing]:
    from .parsing.chart_task import ChartParsing

    return ChartParsing


def _tags() -> type[Parsing]:
    from .parsing.tags_task import TagParsing

    return TagParsing


TASKS: Mapping[str, Callable[[], type[Translation]]] = {
    "translation": _translation,
    "mask_predict": _mask_predict,
    "parsing": _sequence,
}
"""What loads the task class of each value of `task`; `DECODERS` says which kind of `parsing`."""
DECODERS: Mapping[str, Callable[[], type[Parsing]]] = {
    "sequence": _sequence,
    "chart": _chart,
    "tags": _tags,
}
"""What loads the task class of each value of `parsing.decoder`."""


def task_of(run: Mapping[str, Any], source: Vocabulary, target: Vocabulary) -> Translation:
    """Return the task of a run that is stored in a checkpoint.

    Args:
        run: the run as plain data; missing keys have their defaults.
        source: vocabulary of the source side.
        target: vocabulary of the target side.

    Raises:
        InputError: the task is unknown.
    """
    name = run.get("task", "translation")
    if name not in TASKS:
        help_ = did_you_mean(str(name), TASKS)
        raise InputError(f"no task '{name}'", place="run.json#/task", help=help_)
    from ..train.loss import LossSettings

    loss = LossSettings(**run.get("loss", {}))
    if name != "parsing":
        return TASKS[name]()(source, target, loss)
    from ..data.treebank.settings import ParsingSettings

    parsing = ParsingSettings(**run.get("parsing", {}))
    return DECODERS[parsing.decoder]()(source, target, loss, parsing=parsing)


def sizes_of(run: Mapping[str, Any], source: Vocabulary, target: Vocabulary) -> dict[str, int]:
    """Return the params of a spec that are determined by the vocabularies of a run.

    Args:
        run: the run as plain data; missing keys have their defaults.
        source: vocabulary of the source side.
        target: vocabulary of the target side.
    """
    if run.get("task") == "parsing":
        from ..data.treebank.settings import ParsingSettings

        parsing = ParsingSettings(**run.get("parsing", {}))
        return DECODERS[parsing.decoder]().sizes(source, target)
    return _translation().sizes(source, target)


def make_task(run: Run, prepared: Prepared, graph: Graph) -> Translation:
    """Return the task of a run with its prepared data, including the graph's auxiliary losses."""
    from ...graphs.passes.output_projection import head_of

    losses = tuple(name for name, type_ in graph.outputs.items() if type_.kind == "loss")
    tokenizers = prepared.source_tokenizer, prepared.target_tokenizer
    head = head_of(graph, "logits")
    if run.task == "parsing":
        kind = DECODERS[run.parsing.decoder]()
        return kind(*tokenizers, run.loss, losses, head, parsing=run.parsing)
    return TASKS[run.task]()(*tokenizers, run.loss, losses, head)


def reading_of(run: Run) -> Reading:
    """Return the reader of a run's files."""
    from ..data.treebank.pairs import Parallel

    if run.task != "parsing":
        return Parallel()
    from ..data.treebank.reader import TreeReading

    return TreeReading(run.parsing, pieces=tokenizer_of(run).target == "pieces")


def tokenizer_of(run: Run) -> TokenizerSettings:
    """Return the tokenizer settings of a run, with `target` defaulting to that of its task."""
    settings = run.tokenizer
    if settings.target is not None:
        return settings
    target = "symbols" if run.task == "parsing" else "pieces"
    return settings.model_copy(update={"target": target})
