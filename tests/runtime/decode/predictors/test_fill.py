"""Predictors without a search: fill, mask-predict and CTC."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
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
from weft.runtime.decode.predictors.ctc import collapse, prefix_beam_search
from weft.runtime.decode.predictors.mask_predict import lengths_to_try, mask_predict
from weft.runtime.decode.predictors.predictor import Answer, Context
from weft.runtime.decode.predictors.registry import PREDICTORS
from weft.specs.findings import InputError
from weft.specs.load import load

from .conftest import Text

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


MASK_PREDICT_MASK, PAD, EOS, A, B, C = range(6)


def scores(*rows: list[tuple[int, float]]) -> Tensor:
    """Return logits [R, T, V] that give each word the given probability; the rest is shared."""
    table = torch.zeros(len(rows), max(map(len, rows)), 6)
    for r, row in enumerate(rows):
        for t, (word, p) in enumerate(row):
            table[r, t] = torch.tensor((1 - p) / 5).log()
            table[r, t, word] = torch.tensor(p).log()
    return table


def test_the_least_probable_words_are_written_again() -> None:
    """Four words, four iterations: 3, 2 and 1 of them are masked again."""
    seen: list[list[int]] = []
    answers = iter(
        [
            scores([(A, 0.5), (B, 0.9), (C, 0.6), (A, 0.7)]),
            scores([(B, 0.8), (A, 0.95), (A, 0.55), (C, 0.4)]),
            scores([(C, 0.99), (C, 0.99), (B, 0.9), (B, 0.6)]),
            scores([(C, 0.99), (C, 0.99), (C, 0.99), (A, 0.75)]),
        ]
    )

    def predict(words: Tensor, mask: Tensor) -> Tensor:
        assert mask.all()
        seen.append(words[0].tolist())
        return next(answers)

    [[found]] = mask_predict(
        predict, torch.tensor([[4]]), iterations=4, mask=MASK_PREDICT_MASK, never={PAD, EOS}
    )

    # B at 0.9 stays; positions 2 and 3 at 0.55 and 0.4 are masked, then only 3 at 0.6.
    assert seen == [
        [MASK_PREDICT_MASK, MASK_PREDICT_MASK, MASK_PREDICT_MASK, MASK_PREDICT_MASK],
        [MASK_PREDICT_MASK, B, MASK_PREDICT_MASK, MASK_PREDICT_MASK],
        [B, B, MASK_PREDICT_MASK, MASK_PREDICT_MASK],
        [B, B, B, MASK_PREDICT_MASK],
    ]
    assert found.tokens == (B, B, B, A)
    torch.testing.assert_close(
        torch.tensor(found.log_probability).exp(), torch.tensor(0.8 * 0.9 * 0.9 * 0.75)
    )


def test_the_length_with_the_best_words_on_average_comes_first() -> None:
    """Two lengths of one sentence; positions beyond the shorter length are ignored."""
    table = scores([(A, 0.5), (A, 0.99)], [(B, 0.4), (B, 0.8)])

    def predict(words: Tensor, mask: Tensor) -> Tensor:  # noqa: ARG001
        assert mask.tolist() == [[True, False], [True, True]]
        return table

    [[first, second]] = mask_predict(
        predict, torch.tensor([[1, 2]]), iterations=1, mask=MASK_PREDICT_MASK, never={PAD, EOS}
    )

    assert (first.tokens, second.tokens) == ((B, B), (A,))  # sqrt(0.4 * 0.8) > 0.5
    assert first.score > second.score


def test_special_tokens_are_never_generated() -> None:
    """Neither special tokens nor the mask, however probable they are."""
    table = torch.zeros(1, 3, 6)
    table[..., [MASK_PREDICT_MASK, PAD, EOS]] = 9.0
    table[..., C] = 1.0

    [[found]] = mask_predict(
        lambda _words, _mask: table,
        torch.tensor([[3]]),
        iterations=2,
        mask=MASK_PREDICT_MASK,
        never={PAD, EOS},
    )

    assert found.tokens == (C, C, C)


def test_lengths_are_tried_by_probability_and_hopeless_ones_not() -> None:
    """A length below a hundredth of the best length's probability is replaced by the best."""
    score = torch.tensor([[0.3, 0.0009, 0.1, 0.5991], [0.001, 0.997, 0.001, 0.001]]).log()

    assert lengths_to_try(score, 3).tolist() == [[4, 1, 3], [2, 2, 2]]
    assert lengths_to_try(score, 9).tolist() == [[4, 1, 3, 4], [2, 2, 2, 2]]


def test_repeats_are_merged_before_blanks_are_removed() -> None:
    """Graves et al. 2006, section 3.1: B(a-ab-) = B(-aa--abb) = aab."""
    a, b, blank = 1, 2, 0

    assert collapse([a, blank, a, b, blank], blank) == (a, a, b)
    assert collapse([blank, a, a, blank, blank, a, b, b], blank) == (a, a, b)


@pytest.mark.parametrize("seed", range(4))
def test_prefix_beam_search_sums_all_paths(seed: int) -> None:
    """With a wide beam it is exact: all 3^5 paths by brute force."""
    generator = torch.Generator().manual_seed(seed)
    log_p = torch.randn(5, 3, generator=generator).mul(2).log_softmax(-1).tolist()
    total: dict[tuple[int, ...], float] = defaultdict(float)
    for path in itertools.product(range(3), repeat=5):
        p = math.exp(sum(log_p[at][token] for at, token in enumerate(path)))
        total[collapse(path, 2)] += p

    found = prefix_beam_search(log_p, blank=2, beam=1000)

    wanted = sorted(total.items(), key=lambda one: -one[1])
    assert [one.tokens for one in found][:5] == [tokens for tokens, _ in wanted][:5]
    for one in found:
        assert math.exp(one.log_probability) == pytest.approx(total[one.tokens])


def test_the_best_path_may_read_worse_than_the_best_text() -> None:
    """Two positions with blank 0.6 and a 0.4: the path is blank, but P(a) = 1 - 0.36 = 0.64."""
    log_p = [[math.log(0.6), math.log(0.4)]] * 2

    best = prefix_beam_search(log_p, blank=0, beam=4)[0]

    assert best.tokens == (1,)
    assert math.exp(best.log_probability) == pytest.approx(0.64)


def test_no_position_reads_as_no_text() -> None:
    """With probability 1."""
    assert prefix_beam_search([], blank=0, beam=2) == [((), 0.0)]


ROWS = [{"source": "a b ac"}, {"source": "d"}, {"source": "ac d ac"}, {"source": "b"}]


@pytest.mark.parametrize("beam", [1, 5])
def test_the_predictor_reads_each_row_without_padding(scorer: Any, beam: int) -> None:
    """Rows of other lengths do not change the text of a row."""
    model, text = scorer(8), Text("text")
    context = Context((model,), {"source": Text("source"), "text": text}, "text")
    settings = PREDICTORS.parse({"type": "ctc", "beam": beam}, "run.json#/predict")

    found = settings.make(context).predict(ROWS)

    for row, answer in zip(ROWS, found, strict=True):
        ids = torch.tensor([Text("source").encode(row["source"])])
        with torch.no_grad():
            log_p = model(source=ids)["logits"][0].log_softmax(-1)
        tokens = (
            collapse(log_p.argmax(-1).tolist(), 0)
            if beam == 1
            else prefix_beam_search(log_p.tolist(), blank=0, beam=beam)[0].tokens
        )
        assert answer == text.vocabulary.decode(tokens)


def test_blank_must_be_a_token(scorer: Any) -> None:
    """The model has 8 tokens."""
    context = Context((scorer(8),), {"source": Text("source"), "text": Text("text")}, "text")
    settings = PREDICTORS.parse({"type": "ctc", "blank": 8}, "run.json#/predict")

    with pytest.raises(InputError, match="no score of blank 8"):
        settings.make(context).predict(ROWS)
