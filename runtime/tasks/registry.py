"""Choice: the tasks that a run may name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...graphs.ir.graph import Graph
from ...graphs.passes.output_projection import head_of
from ...specs.findings import InputError, did_you_mean
from ..data.prepare import Prepared
from ..data.readers import Parallel, Reading
from ..data.settings import TokenizerSettings
from ..data.symbols import Vocabulary
from ..data.treebank.reader import TreeReading
from ..data.treebank.settings import ParsingSettings
from ..train.run import LossSettings, Run
from .mask_predict import MaskPredict
from .parsing.chart_task import ChartParsing
from .parsing.tags_task import TagParsing
from .parsing.task import Parsing
from .translation import Translation

TASKS: Mapping[str, type[Translation]] = {
    "translation": Translation,
    "mask_predict": MaskPredict,
    "parsing": Parsing,
}
"""What `task` in a run stands for; the last one for whatever decodes step by step."""
DECODERS: Mapping[str, type[Parsing]] = {
    "sequence": Parsing,
    "chart": ChartParsing,
    "tags": TagParsing,
}
"""What `parsing.decoder` in a run stands for."""


def task_of(run: Mapping[str, Any], source: Vocabulary, target: Vocabulary) -> Translation:
    """Return the task of a run, as it is kept in a checkpoint.

    Args:
        run: the run as plain data; what it lacks has the default.
        source: tokenizer of what is read.
        target: tokenizer of what is written.

    Raises:
        InputError: no such task.
    """
    name = run.get("task", "translation")
    if name not in TASKS:
        help_ = did_you_mean(str(name), TASKS)
        raise InputError(f"no task '{name}'", place="run.json#/task", help=help_)
    loss = LossSettings(**run.get("loss", {}))
    if name != "parsing":
        return TASKS[name](source, target, loss)
    parsing = ParsingSettings(**run.get("parsing", {}))
    return DECODERS[parsing.decoder](source, target, loss, parsing=parsing)


def sizes_of(run: Mapping[str, Any], source: Vocabulary, target: Vocabulary) -> dict[str, int]:
    """Return the params of a spec that follow from the vocabularies of a run.

    Args:
        run: the run as plain data; what it lacks has the default.
        source: tokenizer of what is read.
        target: tokenizer of what is written.
    """
    if run.get("task") == "parsing":
        parsing = ParsingSettings(**run.get("parsing", {}))
        return DECODERS[parsing.decoder].sizes(source, target)
    return Translation.sizes(source, target)


def make_task(run: Run, prepared: Prepared, graph: Graph) -> Translation:
    """Return the task of a run on its prepared data; what the graph loses itself is added."""
    losses = tuple(name for name, type_ in graph.outputs.items() if type_.kind == "loss")
    tokenizers = prepared.source_tokenizer, prepared.target_tokenizer
    head = head_of(graph, "logits")
    if run.task == "parsing":
        kind = DECODERS[run.parsing.decoder]
        return kind(*tokenizers, run.loss, losses, head, parsing=run.parsing)
    return TASKS[run.task](*tokenizers, run.loss, losses, head)


def reading_of(run: Run) -> Reading:
    """Return how a run's files are read."""
    if run.task != "parsing":
        return Parallel()
    return TreeReading(run.parsing, pieces=tokenizer_of(run).target == "pieces")


def tokenizer_of(run: Run) -> TokenizerSettings:
    """Return the settings of a run's tokenizers, with what its task says where they are silent."""
    settings = run.tokenizer
    if settings.target is not None:
        return settings
    target = "symbols" if run.task == "parsing" else "pieces"
    return settings.model_copy(update={"target": target})
