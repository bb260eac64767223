"""Filling in masks: against the model called with the ids, for every combination of tokens."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.runtime.codegen.build import build
from weft.runtime.data.columns.column_settings import TextSettings
from weft.runtime.data.columns.registry import columns_of
from weft.runtime.data.symbols import Symbols
from weft.runtime.decode.predictors.columns import for_predictors
from weft.runtime.decode.predictors.predictor import Answer, Context
from weft.runtime.decode.predictors.registry import PREDICTORS
from weft.specs.findings import InputError
from weft.specs.load import load

WORDS = ["der", "Hund", "rennt", "weit", "und"]
VOCABULARY = Symbols(WORDS)
MASK = VOCABULARY.bos
SMALL = {
    "d_model": 8,
    "heads": 2,
    "layers": 1,
    "max_length": 16,
    "vocab": VOCABULARY.vocab_size,
    "dropout": 0.0,
    "attention_dropout": 0.0,
}


@pytest.fixture(scope="module")
def context() -> Context:
    """Return what a predictor of a small masked language model is made from."""
    model = build(check(load("bert").form, registry(), SMALL), seed=3).eval()
    columns = columns_of({"text": TextSettings(tokenizer="text")}, {"text": VOCABULARY})
    params: dict[str, Any] = {
        "model": {"spec": "bert", "params": {**SMALL}},
        "vocab": SMALL["vocab"],
    }
    params["model"]["params"].pop("vocab")
    objective = check(load("masked-language-model").form, registry(), params)
    return Context.of(objective, (model,), for_predictors(columns), "text", half=False)


def answers(context: Context, *texts: str, **settings: Any) -> list[Answer]:
    """Return the answers for some texts."""
    predictor = PREDICTORS.parse({"type": "fill", **settings}, "run.json#/predict").make(context)
    return predictor.answers([{"text": text} for text in texts])


def log_probabilities(context: Context, ids: list[int]) -> Tensor:
    """Return log probabilities [T, V] for ids that no column has encoded."""
    tokens = torch.tensor([ids])
    with torch.no_grad():
        logits = context.models[0](
            tokens=tokens, token_types=0 * tokens, mask=torch.ones_like(tokens).bool()
        )["logits"]
    scores: Tensor = logits[0].log_softmax(-1)
    return scores


def test_masks_are_filled_with_the_best_combinations(context: Context) -> None:
    """All pairs of words are ranked; padding of the batch has no effect."""
    text = "der [MASK] rennt [MASK]"
    first = len(VOCABULARY.encode("")) + VOCABULARY.vocab_size - len(WORDS)
    ids = [first, MASK, first + 2, MASK, VOCABULARY.eos]
    log_p = log_probabilities(context, ids)
    pairs = itertools.product(range(len(WORDS)), repeat=2)
    scored = [(float(log_p[1, first + a] + log_p[3, first + b]), a, b) for a, b in pairs]
    expected = sorted(scored, reverse=True)[:7]

    answer, _ = answers(context, text, "der Hund rennt weit und weit", nbest=7)

    texts = [answer.value, *(other.value for other in answer.others)]
    assert texts == [f"der {WORDS[a]} rennt {WORDS[b]}" for _, a, b in expected]
    scores = [answer.score, *(other.score for other in answer.others)]
    assert scores == pytest.approx([score for score, _, _ in expected], abs=1e-5)
    shares = {WORDS[n]: float(log_p[1, first + n].exp()) for n in range(len(WORDS))}
    assert answer.probabilities == pytest.approx(shares, abs=1e-6)


def test_a_begin_token_is_no_mask(context: Context) -> None:
    """Both have the same id."""
    settings = TextSettings(tokenizer="text", begin=True)
    columns = for_predictors(columns_of({"text": settings}, {"text": VOCABULARY}))

    [answer] = answers(replace(context, columns=columns), "der Hund")

    assert (answer.value, answer.score) == ("der Hund", 0.0)


def test_a_text_without_masks_stays(context: Context) -> None:
    """There is nothing to fill in."""
    [answer] = answers(context, "der Hund rennt")

    assert (answer.value, answer.score, answer.others) == ("der Hund rennt", 0.0, ())


def test_a_mask_may_be_written_in_another_way(context: Context) -> None:
    """At the beginning of a text, too."""
    [usual] = answers(context, "[MASK] Hund")

    assert answers(context, "<x> Hund", written="<x>") == [usual]


def test_an_id_outside_the_vocabulary_is_refused(context: Context) -> None:
    """With the number of tokens."""
    with pytest.raises(InputError, match="'mask_id' is 99, but there are only"):
        answers(context, "der", mask_id=99)


def test_a_column_without_text_is_refused() -> None:
    """A class has no masks."""
    columns: Any = {"label": object()}
    settings = PREDICTORS.parse("fill", "")

    with pytest.raises(InputError, match="has no text whose masks could be filled in"):
        settings.make(Context((), columns, "label"))
