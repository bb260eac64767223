"""Choice: the tasks that a run may name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...graphs.graph import Graph
from ...specs.findings import InputError, did_you_mean
from ..data.prepare import Prepared
from ..data.tokenizer import Tokenizer
from ..train.run import LossSettings, Run
from .mask_predict import MaskPredict
from .translation import Translation

TASKS: Mapping[str, type[Translation]] = {"translation": Translation, "mask_predict": MaskPredict}
"""What `task` in a run stands for."""


def task_of(run: Mapping[str, Any], source: Tokenizer, target: Tokenizer) -> Translation:
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
    return TASKS[name](source, target, LossSettings(**run.get("loss", {})))


def make_task(run: Run, prepared: Prepared, graph: Graph) -> Translation:
    """Return the task of a run on its prepared data; what the graph loses itself is added."""
    losses = tuple(name for name, type_ in graph.outputs.items() if type_.kind == "loss")
    tokenizers = prepared.source_tokenizer, prepared.target_tokenizer
    return TASKS[run.task](*tokenizers, run.loss, losses)
