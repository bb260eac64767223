"""The property `predictions`: what a run trains answers, and so does its reopened checkpoint."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from ...graphs.ir.graph import Graph
from ...graphs.passes.objective import deployed_graph
from ...specs.findings import InputError, SpecError
from ..checkpoint.saving import Contents, save, weights_of
from ..codegen.build import build
from ..data.columns.column import Column
from ..data.columns.column_settings import (
    AudioSettings,
    ClassSettings,
    ColumnSettings,
    ImageSettings,
    NumberSettings,
    TagsSettings,
    TextSettings,
)
from ..data.columns.registry import columns_of
from ..data.settings import SPECIAL_TOKENS, SymbolSettings
from ..data.symbols import Symbols
from ..data.vocabularies import file_of
from ..decode.predictors.columns import for_predictors
from ..decode.predictors.predictor import Context
from ..model.opening import open_model
from ..train.objective import Objective
from ..train.plan import run_at
from ..train.run import Run
from .report import Property
from .subject import not_applicable, perturb

ROWS, WORDS = 3, 5
"""Rows that are answered, and the most words of one."""
SECONDS = 0.2
"""Length of a sound."""
CLASSES = 3
"""Classes of a column whose objective does not tell their number."""
_RANDOM = (AudioSettings, ClassSettings, ImageSettings, NumberSettings, TagsSettings, TextSettings)
"""Types of columns for which random values can be made."""


def run_named(spec: object, overrides: dict[str, Any] | None = None) -> tuple[Run, Graph] | None:
    """Return a run and the graph of its objective; None if a path or a name is not that of a run.

    Args:
        spec: a path or a name; nothing else is a run.
        overrides: values by path of the keys of the run.

    Raises:
        InputError: a file that the run names does not exist.
        SpecError: the run or its objective has mistakes.
    """
    run = run_at(spec, overrides)
    return None if run is None else (run[0], Objective.of(*run).graph)


def predictions(run: Run | None, objective: Graph, seed: int) -> Property:
    """Test that a run answers rows with random weights, and that its checkpoint answers the same.

    The vocabularies have the sizes of the objective, and their words are numbered.

    Args:
        run: the run; None if a spec is proved.
        objective: graph of its objective.
        seed: seed of the weights and the rows.
    """
    predict = None if run is None else run.predict
    if run is None or predict is None or objective.deploy is None:
        reason = "it is not a run" if run is None else "the run does not say how its model predicts"
        return not_applicable("predictions", reason)
    for name, settings in run.data.columns.items():
        if not isinstance(settings, _RANDOM):
            reason = f"there are no random values for the column '{name}' of type '{settings.type}'"
            return not_applicable("predictions", reason)
    tokenizers = {name: SymbolSettings(type="symbols") for name in run.tokenizers}
    run = run.model_copy(update={"tokenizers": tokenizers})
    vocabularies = {name: _vocabulary(name, run, objective) for name in tokenizers}
    columns = columns_of(run.data.columns, vocabularies)
    files = {
        file_of(Path(), name, tokenizers).path.name: vocabulary.bytes
        for name, vocabulary in vocabularies.items()
    }
    for name, column in columns.items():
        if column.fits:
            type_ = objective.inputs.get(name)
            column.fit(map(str, range(int((type_ and type_.size) or CLASSES))))
        files |= column.files()
    draw = random.Random(seed)
    rows = [_row(run, columns, draw) for _ in range(ROWS)]
    graph = deployed_graph(objective)
    model = build(graph, seed=seed).eval()
    perturb(model, seed)
    try:
        context = Context.of(
            objective, (model,), for_predictors(columns), str(run.answers), half=False
        )
        answers = predict.make(context).predict(rows)
        with TemporaryDirectory() as folder:
            contents = Contents(
                graph=graph,
                weights=weights_of(model, graph),
                objective=objective,
                run=run.model_dump(mode="json", by_alias=True, exclude_unset=True),
                tokenizers=files,
            )
            reopened = open_model(save(Path(folder) / "checkpoint", contents))
            again = reopened.predict(rows)
    except (InputError, SpecError) as error:
        return Property(name="predictions", outcome="failed", detail=str(error))
    for number, (first, second) in enumerate(zip(answers, again, strict=True), 1):
        if first != second:
            return Property(
                name="predictions",
                outcome="failed",
                detail=f"the reopened checkpoint answers {second!r:.60}, not {first!r:.60}",
                location=f"row {number}",
            )
    return Property(
        name="predictions",
        outcome="passed",
        detail=f"the predictor '{predict.type}' answers {ROWS} rows as it does reopened",
    )


def _vocabulary(name: str, run: Run, objective: Graph) -> Symbols:
    """Return a vocabulary of the size of the ids that its columns fill."""
    sizes = [
        int(objective.inputs[column].size or 0)
        for column, settings in run.data.columns.items()
        if getattr(settings, "tokenizer", None) == name and column in objective.inputs
    ]
    count = max(1, min(sizes, default=0) - len(SPECIAL_TOKENS))
    return Symbols([f"word{number}" for number in range(count)])


def _row(run: Run, columns: Mapping[str, Column], draw: random.Random) -> dict[str, Any]:
    """Return a row of random values; its texts have the same number of words."""
    words = draw.randint(1, WORDS)
    settings = run.data.columns
    return {name: _value(settings[name], column, words, draw) for name, column in columns.items()}


def _value(settings: ColumnSettings, column: Any, words: int, draw: random.Random) -> Any:
    """Return a random value of a column."""
    noise = np.random.default_rng(draw.randrange(1 << 32))
    match settings:
        case TextSettings():
            return " ".join(draw.choices(column.vocabulary.symbols, k=words))
        case ClassSettings():
            return draw.choice(column.classes)
        case TagsSettings():
            return " ".join(draw.choices(column.classes, k=words))
        case ImageSettings():
            return (noise.random(settings.size) * 200).astype(settings.dtype)
        case AudioSettings():
            return noise.uniform(-0.5, 0.5, int(SECONDS * settings.rate))
    return draw.random()
