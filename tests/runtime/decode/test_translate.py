"""Translation of lines: one output line per input line, in order, for any input."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from weft.runtime import api
from weft.runtime.decode import translate as translate_module
from weft.runtime.decode.settings import Hypothesis
from weft.runtime.decode.translate import Translator, recurring
from weft.runtime.system.arriving import Arriving
from weft.specs.findings import InputError


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
