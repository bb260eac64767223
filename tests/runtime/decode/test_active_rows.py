"""Dropping finished sentences and reading forced prefixes in one step change no output.

Tested on every shipped translation model at its small size, whatever its decoding state is:
keys and values, hidden states, last inputs, sums, or constant values.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from weft.runtime.codegen.build import build
from weft.runtime.decode import active_rows as active
from weft.runtime.decode import forced_prefix
from weft.runtime.decode.decode import Request, SpecialTokens, decode_ids
from weft.runtime.decode.settings import (
    BeamSearch,
    GenerateSettings,
    Hypothesis,
    Sampling,
)
from weft.runtime.decode.stepper import ModelStepper

from ..entries import ENTRIES, small
from .continued import continued

PAD, END, BEGIN = 0, 1, 3
SPECIAL_TOKENS = SpecialTokens(BEGIN, END, PAD)


def translates(name: str) -> bool:
    """Return whether a spec reads a source and writes a target step by step."""
    made = small(name)
    kinds = {port: type_.kind for port, type_ in made.inputs.items()}
    wanted = {"source": "ids", "source_mask": "mask", "target": "ids"}
    return made.step_axis is not None and kinds == wanted


DIFFERENT = (
    "transformer-tiny",
    "transformer-gqa",
    "transformer-local",
    "transformer-parallel",
    "universal-transformer",
    "linear-transformer",
    "moe-transformer",
    "t5",
    "gnmt-small",
    "gru-attention",
    "conv-s2s",
    "bytenet",
    "extended-neural-gpu",
    "parsing-pointer",
)
"""Translators that remember each in another way."""
EVERY = pytest.mark.parametrize(
    "name",
    [
        *DIFFERENT,
        *(pytest.param(name, marks=pytest.mark.slow) for name in ENTRIES if name not in DIFFERENT),
    ],
)
MEMORIES = pytest.mark.parametrize("name", ["transformer-tiny", "gnmt-small", "conv-s2s"])
"""Of attention, recurrences and convolutions."""
SEARCHES = pytest.mark.parametrize(
    "search",
    [
        {"beam": 1, "nbest": 1},
        {"beam": 4, "groups": 2},
        {"no_repeat": 2, "repetition_penalty": 1.5},
        {"samples": 3, "temperature": 2.0},
    ],
    ids=["greedy", "groups", "control", "sample"],
)


def made(name: str) -> nn.Module:
    """Return a small model whose weights give clearly different logits."""
    model = build(small(name)).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.2 * torch.randn(weight.shape, generator=generator))
    return model


def requests(name: str, begins: tuple[int, ...] = (0,) * 5) -> list[Request]:
    """Return sources of 2 to 9 ids, whose outputs have forced prefixes of the given lengths."""
    size = min(int(type_.size or 0) for type_ in small(name).inputs.values() if type_.size)
    generator = torch.Generator().manual_seed(7)

    def ids(count: int) -> list[int]:
        found: list[int] = torch.randint(4, size, (count,), generator=generator).tolist()
        return found

    lengths = (2, 9, 3, 5, 2)
    return [Request(ids(n), ids(begin)) for n, begin in zip(lengths, begins, strict=True)]


def decoded(model: nn.Module, given: list[Request], **search: Any) -> list[list[Hypothesis]]:
    """Return the hypotheses; outputs have about as many tokens as their sources."""
    if "samples" in search:
        settings: BeamSearch | Sampling = Sampling(max_extra=1, min_length=2, **search)
    else:
        settings = BeamSearch(**{"beam": 2, "nbest": 2, "max_extra": 1, "min_length": 2, **search})
    return decode_ids([model], given, SPECIAL_TOKENS, settings)


def assert_same(found: list[list[Hypothesis]], expected: list[list[Hypothesis]]) -> None:
    """Check that tokens are equal, and scores up to rounding, which depends on matrix sizes."""
    assert [[one.tokens for one in row] for row in found] == [
        [one.tokens for one in row] for row in expected
    ]
    numbers, wanted = (
        [each for row in rows for one in row for each in (one.score, one.log_probability)]
        for rows in (found, expected)
    )
    assert numbers == pytest.approx(wanted, abs=1e-4)


@pytest.mark.integration
@EVERY
def test_narrowing_the_state_does_not_change_the_outputs(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state is narrowed as sentences end; outputs equal those without narrowing."""
    if not translates(name):
        pytest.skip("it does not translate step by step")
    model, given = made(name), requests(name)
    sizes: list[int] = []
    narrow = ModelStepper.narrow
    monkeypatch.setattr(
        ModelStepper,
        "narrow",
        lambda self, kept: sizes.append(len(kept)) or narrow(self, kept),
    )

    found = decoded(model, given)
    monkeypatch.setattr(active, "NARROW", math.inf)
    expected = decoded(model, given)

    assert sizes
    assert sizes in ([2, 1], [2], [1])  # halves of five sentences
    assert_same(found, expected)


@pytest.mark.integration
@MEMORIES
@SEARCHES
def test_every_search_drops_finished_rows(
    name: str, search: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Greedy search, groups, logits processors and sampling."""
    model, given = made(name), requests(name)

    found = decoded(model, given, **search)
    monkeypatch.setattr(active, "NARROW", math.inf)

    assert_same(found, decoded(model, given, **search))


def test_an_ensemble_drops_finished_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every model of an ensemble drops the same sentences."""
    models = [made("transformer-tiny"), made("transformer-tiny")]
    with torch.no_grad():
        for weight in models[1].parameters():
            weight.mul_(1.1)
    settings = BeamSearch(beam=2, max_extra=1)
    given = requests("transformer-tiny", (2, 3, 2, 4, 2))

    found = decode_ids(models, given, SPECIAL_TOKENS, settings)
    monkeypatch.setattr(active, "NARROW", math.inf)
    monkeypatch.setattr("weft.runtime.decode.forced_prefix.common", lambda *_: 0)

    assert_same(found, decode_ids(models, given, SPECIAL_TOKENS, settings))


@pytest.mark.parametrize("name", ["llama", "mamba", "gpt2"])
def test_continuations_drop_finished_rows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows with an early end token are dropped; sampled rows keep their random numbers."""
    model = made(name)
    prompts = [[3, 4, 2], [5, 2], [2, 3, 4, 5], [4]]
    settings = GenerateSettings(max_new=8, temperature=1.5, samples=2)
    plain = continued(model, prompts, settings)
    ends = {one.tokens[1] for rows in plain[:3] for one in rows}

    found = continued(model, prompts, settings, eos=ends)
    monkeypatch.setattr(active, "NARROW", math.inf)
    expected = continued(model, prompts, settings, eos=ends)

    assert found == expected
    assert {len(one.tokens) for rows in found for one in rows} > {1}


def steps_of(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that collects the number of positions of each call of a model."""
    calls: list[int] = []
    steps = ModelStepper.steps

    def counted(self: ModelStepper, tokens_RT: Tensor, position: int) -> Tensor:
        calls.append(tokens_RT.size(1))
        return steps(self, tokens_RT, position)

    monkeypatch.setattr(ModelStepper, "steps", counted)
    return calls


@pytest.mark.integration
@EVERY
def test_a_forced_prefix_is_read_in_one_step(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to the end of the shortest prefix, with the same result as token by token."""
    if not translates(name):
        pytest.skip("it does not translate step by step")
    model, given = made(name), requests(name, (3, 4, 3, 6, 3))
    calls = steps_of(monkeypatch)

    found = decoded(model, given)
    at_once = list(calls)
    monkeypatch.setattr("weft.runtime.decode.forced_prefix.common", lambda *_: 0)
    calls.clear()
    expected = decoded(model, given)

    assert at_once[:2] == [4, 1]
    assert calls[:5] == [1] * 5
    assert len(calls) == len(at_once) + 3
    assert_same(found, expected)
    for one, row in zip(given, found, strict=True):
        for each in row:
            assert list(each.tokens[: len(one.begin)]) == one.begin


@pytest.mark.integration
@MEMORIES
@SEARCHES
def test_every_search_reads_the_prefix_in_one_step(
    name: str, search: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a large vocabulary, only a few positions at a time."""
    model, given = made(name), requests(name, (5, 4, 7, 4, 4))
    calls = steps_of(monkeypatch)
    size = int(small(name).inputs["target"].size or 0)
    monkeypatch.setattr(
        forced_prefix, "NUMBERS", 2 * size * 5 * search.get("beam", search.get("samples", 2))
    )

    found = decoded(model, given, **search)
    assert calls[:4] == [2, 2, 1, 1]
    monkeypatch.setattr("weft.runtime.decode.forced_prefix.common", lambda *_: 0)

    assert_same(found, decoded(model, given, **search))


def test_only_a_prefix_with_the_end_token_inside_is_read_token_by_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A prefix with a repeated n-gram is required, so it is read at once, after the begin token."""
    model = made("transformer-tiny")
    calls = steps_of(monkeypatch)
    given = [Request([5, 6, 7], [5, 5, 5]), Request([8, 9], [6, 7, 8])]

    decoded(model, given, no_repeat=1)
    assert calls[0] == 1 + 3
    calls.clear()
    decoded(model, [Request([5, 6, 7], [5, END, 5])])

    assert calls[0] == 2
    assert set(calls[1:]) <= {1}


def test_rows_cancelled_within_the_prefix_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cancelled rows are dropped within the prefix; the others still begin with theirs."""
    model, given = made("transformer-tiny"), requests("transformer-tiny", (4, 4, 4, 4, 4))
    expected = decoded(model, given)
    calls = steps_of(monkeypatch)

    found = decode_ids(
        [model],
        given,
        SPECIAL_TOKENS,
        BeamSearch(beam=2, nbest=2, max_extra=1, min_length=2),
        cancelled=lambda: [0, 2, 4],
    )

    assert calls[0] == 5
    assert_same([found[1], found[3]], [expected[1], expected[3]])
