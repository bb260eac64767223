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
from weft.runtime.decode import translate as translate_module
from weft.runtime.decode.settings import BeamSearch, Hypothesis, Sampling
from weft.runtime.decode.translate import TranslationRequest, Translator, recurring
from weft.runtime.system.arriving import Arriving
from weft.specs.findings import InputError


@pytest.fixture(scope="module")
def model(toy_checkpoint: Path) -> api.Model:
    """Return a model trained just enough to give different outputs for different inputs."""
    return api.open_model(toy_checkpoint)


@pytest.mark.integration
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
    monkeypatch.setattr(translate_module, "BATCH_TOKENS", 1)
    lines = ["", "tree", "sun moon wind", "leaf", "fire", "snow", "moon"]
    read, decoded = list[str](), list[int]()

    def text() -> Iterator[str]:
        for line in lines:
            read.append(line)
            yield line

    decode = Translator.decode_requests
    monkeypatch.setattr(
        Translator,
        "decode_requests",
        lambda self, requests, *more: decoded.append(1) or decode(self, requests, *more),
    )
    found = model.translator.hypotheses(text(), buffer=4, first=3)

    assert (next(found), read, decoded) == ([], lines[:3], [])
    assert next(found)
    assert (len(read), len(decoded)) == (3, 1)
    assert next(found)
    assert (len(read), len(decoded)) == (3, 2)
    assert len(list(found)) == 4


def test_buffers_grow_only_while_lines_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a file, or of a pipe that was read ahead; after a pause, the next is small again."""
    sizes = list[int]()

    def chunk(_: Translator, lines: list[str], *more: object) -> Iterator[list[Hypothesis]]:
        del more
        sizes.append(len(lines))
        return iter([[]] * len(lines))

    monkeypatch.setattr(Translator, "_chunk", chunk)
    nothing: Any = None
    translator = Translator(nothing, nothing, nothing, nothing)
    arrived = Arriving(map(str, range(20)), 21)
    arrived._thread.join()

    for lines in (map(str, range(20)), arrived):
        sizes.clear()
        assert len(list(translator.hypotheses(lines, buffer=8, first=2))) == 20
        assert sizes == [2, 4, 8, 6]

    sizes.clear()
    asked = threading.Semaphore(0)
    typed = ("line" for _ in range(5) if asked.acquire(timeout=60))
    one_by_one = Arriving(typed, 21, waiting=asked.release, pause=0.001)
    assert len(list(translator.hypotheses(one_by_one, buffer=8, first=2))) == 5
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
    monkeypatch.setattr(translate_module, "LONGEST_SOURCE", 6)
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
    length = len(model.translator.source.encode("moon moon"))
    monkeypatch.setattr(translate_module, "LONGEST_SOURCE", length)
    warnings: list[tuple[int, str]] = []

    short, long = model.score(
        [("moon moon", "sun"), ("moon " * 30, "sun")],
        warn=lambda line, text: warnings.append((line, text)),
    )

    assert long.score == pytest.approx(short.score, abs=1e-4)
    assert [line for line, _ in warnings] == [2]
    assert f"truncated to {length}" in warnings[0][1]


@pytest.mark.parametrize(
    ("request_", "what"),
    [
        (TranslationRequest("sun 日本 sun"), "the source"),
        (TranslationRequest("sun", begin="日本 sun"), "the prefix"),
        (TranslationRequest("sun", include=["日本"]), "a required phrase"),
    ],
)
def test_what_the_vocabulary_lacks_is_named(
    model: api.Model, request_: TranslationRequest, what: str
) -> None:
    """Once for each text, with the line."""
    warnings: list[tuple[int, str]] = []

    model.translate(["moon", request_], warn=lambda line, text: warnings.append((line, text)))

    assert [line for line, _ in warnings] == [2]
    assert "日" in warnings[0][1]
    assert f"of {what}" in warnings[0][1]


def test_a_phrase_to_avoid_that_no_output_can_contain_is_named(model: api.Model) -> None:
    """The setting has no effect."""
    search = model.translator.search.model_copy(update={"avoid": ("日本",)})
    warnings: list[str] = []

    list(
        replace(model.translator, search=search, _avoidance=[]).translate(
            ["sun", "moon"], warn=lambda _, text: warnings.append(text)
        )
    )

    assert len(warnings) == 1
    assert "'avoid'" in warnings[0]


REQUIRED = [
    TranslationRequest("sun moon tree", begin="moon moon moon"),
    TranslationRequest("sun moon tree", include=["moon moon moon"]),
    TranslationRequest("sun moon tree", begin="moon", include=["moon sun moon"]),
    TranslationRequest("sun", begin="moon sun " * 10),
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
    translator = replace(model.translator, search=search, _avoidance=[])

    for request, found in zip(REQUIRED, translator.hypotheses(REQUIRED), strict=True):
        for one in found:
            text = translator.target.decode(one.tokens)
            assert text.startswith(request.begin.strip())
            assert all(phrase in text for phrase in request.include)
            assert math.isfinite(one.log_probability)


def test_only_the_required_text_may_repeat(model: api.Model) -> None:
    """The other words of the output occur once."""
    search = BeamSearch(beam=4, no_repeat=1)
    translator = replace(model.translator, search=search)
    request = TranslationRequest("sun moon tree river", include=["moon moon"])

    [[best]] = translator.hypotheses([request])

    words = translator.target.decode(best.tokens).split()
    at = " ".join(words).index("moon moon")
    others = " ".join(words)[:at].split() + " ".join(words)[at + len("moon moon") :].split()
    assert len(set(others)) == len(others)


def test_a_ban_that_the_required_text_breaks_is_named(model: api.Model) -> None:
    """The ban holds in the other lines."""
    search = BeamSearch(beam=4, avoid=("moon",))
    translator = replace(model.translator, search=search, _avoidance=[])
    warnings: list[tuple[int, str]] = []

    found = list(
        translator.translate(
            ["moon moon", TranslationRequest("sun", begin="moon")],
            warn=lambda line, text: warnings.append((line, text)),
        )
    )

    assert "moon" not in found[0]
    assert found[1].startswith("moon")
    assert warnings == [(2, "'avoid' bans 'moon', but the required text has it, and wins")]


@pytest.mark.parametrize("beam", [1, 3])
def test_where_every_token_is_banned_the_output_stops(model: api.Model, beam: int) -> None:
    """All words once, and then nothing is left: the score stays finite."""
    search = BeamSearch(beam=beam, no_repeat=1, min_length=60, max_length=90)
    translator = replace(model.translator, search=search)

    [found] = translator.hypotheses(["sun moon"])

    assert not found[0].finished
    assert len(set(found[0].tokens)) == len(found[0].tokens)
    assert math.isfinite(found[0].score)


def test_a_phrase_of_spaces_is_no_phrase_to_avoid() -> None:
    """It would be found everywhere or nowhere."""
    with pytest.raises(ValueError, match="'avoid' has a phrase of white space alone"):
        BeamSearch(avoid=(" ",))


def test_output_is_bounded_by_input_plus_extra(model: api.Model) -> None:
    """The paper's bound: at most input + max_extra tokens, counting end tokens on both sides."""
    search = model.translator.search.model_copy(update={"max_extra": 1})
    short = replace(model.translator, search=search)

    for ids in ([4, 5], [6, 7, 8, 9]):
        [[best, *_]] = short.decode([ids])
        assert len(best.tokens) <= len(ids) + 1 + 1


def test_ids_are_decoded_as_text_is(model: api.Model) -> None:
    """`decode` with ids equals `translate`, given the end token of each source, in any batch."""
    translator = model.translator
    ids = [[*translator.source.encode(w), translator.source.eos] for w in ("sun moon", "leaf")]

    found = model.decode(ids)

    expected = [best.tokens for [best, *_] in translator.decode([ids[0][:-1], ids[1][:-1]])]
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
    sources = [model.translator.source.encode(w) for w in ("sun moon tree", "leaf fire", "snow")]
    scores = []
    for beam in (1, 4):
        search = model.translator.search.model_copy(update={"beam": beam, "alpha": 0.0})
        found = replace(model.translator, search=search).decode(sources)
        scores.append(sum(hyps[0].log_probability for hyps in found))

    assert scores[1] >= scores[0] - 1e-4
