"""CTC decoding against the definition: the sum over all paths."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from typing import Any

import pytest
import torch
from weft.runtime.decode.predictors.ctc import collapse, prefix_beam_search
from weft.runtime.decode.predictors.predictor import Context
from weft.runtime.decode.predictors.registry import PREDICTORS
from weft.specs.findings import InputError

from .conftest import Text


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
