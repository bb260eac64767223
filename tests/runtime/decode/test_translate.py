"""Translation of lines: one output line per input line, in order, for any input."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from weft.runtime import api
from weft.runtime.decode.decode import Request
from weft.runtime.decode.predictors import text as text_module
from weft.runtime.decode.predictors.predictor import Answer, Row
from weft.runtime.decode.predictors.registry import changed_predictor
from weft.runtime.decode.predictors.text import LINE, TextPredictor, recurring, row_of_line
from weft.runtime.decode.settings import BeamSearch, Sampling
from weft.runtime.system.arriving import Arriving
from weft.specs.findings import InputError

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def model(toy_checkpoint: Path) -> api.Model:
    """Return a model trained just enough to give different outputs for different inputs."""
    return api.open_model(toy_checkpoint)


def test_lines_are_independent_of_their_neighbours(model: api.Model) -> None:
    """Sorting, batching, padding and the buffer size change no line."""
    lines = ["sun moon", "tree", "river stone bird wind leaf", "fire snow sun", "moon"]
    alone = [model.translate([line])[0] for line in lines]

    assert model.translate(lines) == alone
    assert model.translate(lines, buffer=2) == alone
    assert model.translate(lines[::-1]) == alone[::-1]


def test_a_line_is_yielded_when_it_is_done(
    model: api.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its batch comes first, and neither the other batches nor the rest of the text are awaited."""
    lines = ["", "tree", "sun moon wind", "leaf", "fire", "snow", "moon"]
    read, decoded = list[str](), list[int]()

    def rows() -> Iterator[Row]:
        for line in lines:
            read.append(line)
            yield row_of_line(line)

    decode = TextPredictor.decode_requests
    monkeypatch.setattr(
        TextPredictor,
        "decode_requests",
        lambda self, requests, *more: decoded.append(1) or decode(self, requests, *more),
    )
    predictor = replace(model.line_predictor(), batch_tokens=1)
    found = predictor.stream(rows(), buffer=4, first=3)

    assert (next(found), read, decoded) == ([], lines[:3], [])
    assert next(found)
    assert (len(read), len(decoded)) == (3, 1)
    assert next(found)
    assert (len(read), len(decoded)) == (3, 2)
    assert len(list(found)) == 4


def test_buffers_grow_only_while_lines_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a file, or of a pipe that was read ahead; after a pause, the next is small again."""
    sizes = list[int]()

    def chunk(_: TextPredictor, rows: list[Row], *more: object) -> Iterator[list[Answer]]:
        del more
        sizes.append(len(rows))
        return iter([[]] * len(rows))

    monkeypatch.setattr(TextPredictor, "_chunk", chunk)
    nothing: Any = None
    predictor = TextPredictor(*[nothing] * 8)
    arrived = Arriving([LINE] * 20, 21)
    arrived._thread.join()

    for rows in ([LINE] * 20, arrived):
        sizes.clear()
        assert len(list(predictor.stream(rows, buffer=8, first=2))) == 20
        assert sizes == [2, 4, 8, 6]

    sizes.clear()
    asked = threading.Semaphore(0)
    typed = (LINE for _ in range(5) if asked.acquire(timeout=60))
    one_by_one = Arriving(typed, 21, waiting=asked.release, pause=0.001)
    assert len(list(predictor.stream(one_by_one, buffer=8, first=2))) == 5
    assert sizes == [1] * 5


def test_sizes_of_batches_recur() -> None:
    """Four in each octave; a batch is at most a fifth smaller than it may be."""
    sizes = sorted({recurring(count) for count in range(1, 65)})

    assert sizes == [*range(1, 9), 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64]
    assert all(0.8 * count < recurring(count) <= count for count in range(1, 1000))


def test_empty_lines_stay_where_they_are(model: api.Model) -> None:
    """No line is lost or moved."""
    found = model.translate(["", "sun moon", "   ", "tree", ""])

    assert len(found) == 5
    assert (found[0], found[2], found[4]) == ("", "", "")
    assert found[1] == model.translate(["sun moon"])[0]


def test_too_long_a_line_is_cut_with_a_warning(
    model: api.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The warning has the line's number; other lines are unchanged."""
    monkeypatch.setattr(text_module, "LONGEST_SOURCE", 6)
    warnings: list[tuple[int, str]] = []

    found = model.translate(
        ["sun", "moon " * 30, "tree"], warn=lambda line, text: warnings.append((line, text))
    )

    assert len(found) == 3
    assert [line for line, _ in warnings] == [2]
    assert "truncated to 6" in warnings[0][1]
    assert found[0] == model.translate(["sun"])[0]


def test_scoring_truncates_a_source_as_translating_does(
    model: api.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And says so, with the line."""
    length = len(model.line_predictor().source.encode("moon moon"))
    monkeypatch.setattr(text_module, "LONGEST_SOURCE", length)
    warnings: list[tuple[int, str]] = []

    short, long = model.score(
        [("moon moon", "sun"), ("moon " * 30, "sun")],
        warn=lambda line, text: warnings.append((line, text)),
    )

    assert long.score == pytest.approx(short.score, abs=1e-4)
    assert [line for line, _ in warnings] == [2]
    assert f"truncated to {length}" in warnings[0][1]


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ({"source": "sun 日本 sun"}, "the source"),
        ({"source": "sun", "prefix": "日本 sun"}, "the prefix"),
        ({"source": "sun", "include": "moon\t日本"}, "a required phrase"),
    ],
)
def test_what_the_vocabulary_lacks_is_named(
    model: api.Model, row: dict[str, Any], what: str
) -> None:
    """Once for each text, with the line."""
    warnings: list[tuple[int, str]] = []

    model.translate(["moon", row], warn=lambda line, text: warnings.append((line, text)))

    assert [line for line, _ in warnings] == [2]
    assert "日" in warnings[0][1]
    assert f"of {what}" in warnings[0][1]


def test_a_phrase_to_avoid_that_no_output_can_contain_is_named(model: api.Model) -> None:
    """The setting has no effect."""
    strategy = changed_predictor(model.strategy, {"avoid": ["日本"]}, "predict")
    warnings: list[str] = []

    replace(model, strategy=strategy).translate(
        ["sun", "moon"], warn=lambda _, text: warnings.append(text)
    )

    assert len(warnings) == 1
    assert "'avoid'" in warnings[0]


REQUIRED = [
    {"source": "sun moon tree", "prefix": "moon moon moon", "include": []},
    {"source": "sun moon tree", "prefix": "", "include": ["moon moon moon"]},
    {"source": "sun moon tree", "prefix": "moon", "include": ["moon sun moon"]},
    {"source": "sun", "prefix": "moon sun " * 10, "include": ""},
]
FORBIDDING: dict[str, dict[str, Any]] = {
    "no_repeat": {"no_repeat": 1},
    "avoid": {"avoid": ("moon",)},
    "both": {"no_repeat": 1, "avoid": ("moon moon", "sun moon")},
    "max_length": {"max_length": 1},
    "no length": {"max_factor": 0.0, "max_extra": 0},
    "min_length": {"min_length": 30, "no_repeat": 1, "max_length": 40},
}


@pytest.mark.parametrize(
    "ways",
    [
        partial(BeamSearch, beam=1),
        partial(BeamSearch, beam=4, nbest=4),
        partial(Sampling, samples=3),
    ],
)
@pytest.mark.parametrize("forbidding", FORBIDDING)
def test_required_text_wins_over_every_setting(
    model: api.Model, forbidding: str, ways: Callable[..., BeamSearch | Sampling]
) -> None:
    """Every output has it, and a finite score."""
    search = ways(**FORBIDDING[forbidding])
    predictor = replace(model.line_predictor(), search=search)

    for row, answers in zip(REQUIRED, predictor.stream(REQUIRED), strict=True):
        for answer in answers:
            assert answer.value.startswith(row["prefix"].strip())
            assert all(phrase in answer.value for phrase in row["include"])
            assert math.isfinite(answer.hypothesis.log_probability)


def test_only_the_required_text_may_repeat(model: api.Model) -> None:
    """The other words of the output occur once."""
    search = BeamSearch(beam=4, no_repeat=1)
    predictor = replace(model.line_predictor(), search=search)
    row = {**LINE, "source": "sun moon tree river", "include": ["moon moon"]}

    [[best]] = predictor.stream([row])

    words = best.value.split()
    at = " ".join(words).index("moon moon")
    others = " ".join(words)[:at].split() + " ".join(words)[at + len("moon moon") :].split()
    assert len(set(others)) == len(others)


def test_a_ban_that_the_required_text_breaks_is_named(model: api.Model) -> None:
    """The ban holds in the other lines."""
    strategy = changed_predictor(model.strategy, {"avoid": ["moon"]}, "predict")
    warnings: list[tuple[int, str]] = []

    found = replace(model, strategy=strategy).translate(
        ["moon moon", {"source": "sun", "prefix": "moon"}],
        warn=lambda line, text: warnings.append((line, text)),
    )

    assert "moon" not in found[0]
    assert found[1].startswith("moon")
    assert warnings == [(2, "'avoid' bans 'moon', but the required text has it, and wins")]


@pytest.mark.parametrize("beam", [1, 3])
def test_where_every_token_is_banned_the_output_stops(model: api.Model, beam: int) -> None:
    """All words once, and then nothing is left: the score stays finite."""
    search = BeamSearch(beam=beam, no_repeat=1, min_length=60, max_length=90)
    predictor = replace(model.line_predictor(), search=search)

    [[answer, *_]] = predictor.stream([row_of_line("sun moon")])

    tokens = answer.hypothesis.tokens
    assert not answer.hypothesis.finished
    assert len(set(tokens)) == len(tokens)
    assert math.isfinite(answer.score)


def test_a_row_has_no_other_keys(model: api.Model) -> None:
    """A requirement that is misspelled would be lost."""
    with pytest.raises(InputError, match="a line of text has no 'begin'"):
        model.translate([{"source": "sun", "begin": "moon"}])


def test_a_phrase_of_spaces_is_no_phrase_to_avoid() -> None:
    """It would be found everywhere or nowhere."""
    with pytest.raises(ValueError, match="'avoid' has a phrase of white space alone"):
        BeamSearch(avoid=(" ",))


def test_output_is_bounded_by_input_plus_extra(model: api.Model) -> None:
    """The paper's bound: at most input + max_extra tokens, counting end tokens on both sides."""
    search = model.search.model_copy(update={"max_extra": 1})
    short = replace(model.line_predictor(), search=search)

    for ids in ([4, 5], [6, 7, 8, 9]):
        [[best, *_]] = short.decode_requests([Request(ids)])
        assert len(best.tokens) <= len(ids) + 1 + 1


def test_ids_are_decoded_as_text_is(model: api.Model) -> None:
    """`decode` with ids equals `translate`, given the end token of each source, in any batch."""
    predictor = model.line_predictor()
    ids = [[*predictor.source.encode(w), predictor.source.eos] for w in ("sun moon", "leaf")]

    found = model.decode(ids)

    decoded = predictor.decode_requests([Request(one[:-1]) for one in ids])
    expected = [best.tokens for [best, *_] in decoded]
    assert [hypotheses[0].tokens for hypotheses in found] == expected
    assert [model.decode([one])[0][0].tokens for one in ids] == expected
    assert model.decode([]) == []


@pytest.mark.parametrize(
    ("sources", "problem"),
    [([[4], []], "source 2 is empty"), ([[4, 999]], "source 1 has the id 999")],
)
def test_ids_outside_the_vocabulary_raise_an_error(
    model: api.Model, sources: list[list[int]], problem: str
) -> None:
    """The error is raised before anything is computed."""
    with pytest.raises(InputError, match=problem):
        model.decode(sources)


def test_a_wider_beam_never_scores_worse_than_greedy_on_average(model: api.Model) -> None:
    """The mean score of beam 4 is at least that of beam 1."""
    predictor = model.line_predictor()
    rows = [row_of_line(line) for line in ("sun moon tree", "leaf fire", "snow")]
    scores = []
    for beam in (1, 4):
        search = model.search.model_copy(update={"beam": beam, "alpha": 0.0})
        answers = replace(predictor, search=search).stream(rows)
        scores.append(sum(best.hypothesis.log_probability for best, *_ in answers))

    assert scores[1] >= scores[0] - 1e-4
