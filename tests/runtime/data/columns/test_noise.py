"""Noise of texts: by the definition of each kind, and as a function of seed, epoch and row."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft.runtime.data.columns.noise import (
    CaseNoise,
    DropNoise,
    Noise,
    NoiseSettings,
    ReplaceNoise,
    SwapNoise,
    TagNoise,
    TypoNoise,
    with_noise,
)
from weft.runtime.data.prepare import prepare
from weft.runtime.data.table_settings import DataSettings

from ..pairs import bpe, lines, pairs

WORDS = [f"w{number}" for number in range(400)]
TEXT = " ".join(WORDS)


def drawn(kind: NoiseSettings, text: str, seed: int = 0) -> str:
    """Return a text with one kind of noise."""
    return kind.changed(text, np.random.default_rng(seed))


def test_case_and_tags_of_every_text_by_hand() -> None:
    """With the probability 1; a probability of 1/2 changes about half of the texts."""
    assert drawn(CaseNoise(rate=1.0), "The DOG") == "the dog"
    assert drawn(CaseNoise(rate=1.0, to="upper"), "The dog") == "THE DOG"
    assert drawn(TagNoise(text="<b>"), "the dog") == "<b> the dog"
    tagged = [drawn(TagNoise(text="<b>", rate=0.5), "x", seed) for seed in range(400)]
    assert 150 < tagged.count("<b> x") < 250


@given(st.integers(1, 9), st.integers(0, 99))
def test_words_move_at_most_by_the_distance(distance: int, seed: int) -> None:
    """And none is lost."""
    moved = drawn(SwapNoise(distance=distance), TEXT, seed).split()

    assert sorted(moved) == sorted(WORDS)
    assert moved != WORDS
    assert max(abs(moved.index(word) - at) for at, word in enumerate(WORDS)) <= distance


def test_words_are_dropped_and_replaced_as_often_as_the_rate_says() -> None:
    """What remains is in order; a text keeps a word."""
    remaining = drawn(DropNoise(rate=0.25), TEXT).split()
    filled = drawn(ReplaceNoise(rate=0.25, by="_"), TEXT).split()

    assert 270 < len(remaining) < 330
    assert remaining == [word for word in WORDS if word in remaining]
    assert 70 < filled.count("_") < 130
    assert all(new in ("_", old) for new, old in zip(filled, WORDS, strict=True))
    assert all(drawn(DropNoise(rate=0.99), "a b", seed) in ("a", "b") for seed in range(50))


def test_typos_drop_double_and_exchange_letters() -> None:
    """Of a word of two letters, all outcomes are known; digits stay, and words remain words."""
    once = {drawn(TypoNoise(rate=0.3), "ab", seed) for seed in range(300)}

    assert once >= {"ab", "ba", "a", "b", "aab", "abb"}
    assert "" not in once
    assert drawn(TypoNoise(rate=1.0), "12 3") == "12 3"
    text = "tree " * 200
    changed = drawn(TypoNoise(rate=0.1), text).split()
    assert len(changed) == 200
    assert 40 < sum(word != "tree" for word in changed) < 100


def test_noise_depends_on_seed_epoch_row_and_column_alone() -> None:
    """And on the source of the row."""
    kinds = (SwapNoise(), TagNoise(text="<b>", sources=("back",)))
    sources = {"real": 5, "back": 3}
    first = with_noise(TEXT, kinds, Noise(1, 2, sources), 4, "source")

    assert first == with_noise(TEXT, kinds, Noise(1, 2, sources), 4, "source")
    others = [
        with_noise(TEXT, kinds, Noise(seed, epoch, sources), row, column)
        for seed, epoch, row, column in (
            (0, 2, 4, "source"),
            (1, 1, 4, "source"),
            (1, 2, 3, "source"),
            (1, 2, 4, "target"),
        )
    ]
    assert first not in others
    assert not first.startswith("<b>")
    assert with_noise("x", kinds, Noise(1, 2, sources), 5, "source") == "<b> x"


@pytest.fixture
def data(tmp_path: Path) -> Callable[..., DataSettings]:
    """Return a factory of data whose column `source` has noise."""
    (tmp_path / "a").write_text("sun moon star\nmoon star\nstar sun moon sun\n")

    def made(*noise: dict[str, Any]) -> DataSettings:
        split = {"sources": {"x": lines(["a"], ["a"]), "back": lines(["a"], ["a"])}}
        settings = pairs(tmp_path, split, lines(["a"], ["a"]))
        value = json.loads(settings.model_dump_json(by_alias=True))
        value["columns"]["source"]["noise"] = list(noise)
        return DataSettings.model_validate_json(json.dumps(value))

    return made


@pytest.mark.integration
def test_batches_have_noise_in_training_and_none_in_validation(
    data: Callable[..., DataSettings], tmp_path: Path
) -> None:
    """The same rows as with the changed texts in the files; another noise prepares nothing."""
    messages: list[str] = []
    upper = {"type": "case", "to": "upper", "rate": 1.0, "sources": ["back"]}

    swapped = prepare(data({"type": "swap"}), bpe(24), tmp_path / "out", log=messages.append)
    made = prepare(data(upper), bpe(24), tmp_path / "out", log=messages.append)

    assert not messages
    assert swapped.digest == made.digest
    rows = np.arange(6)
    vocabulary = made.vocabularies["tokenizer"]
    texts = ["sun moon star", "moon star", "star sun moon sun"]
    wanted = [vocabulary.encode(text) for text in (*texts, *(text.upper() for text in texts))]
    inputs = made.train.collate(rows, noise=(1, 0))
    found = [[i for i in row if i not in (0, 1)] for row in inputs["source"].tolist()]
    assert found == wanted
    assert inputs["target"].equal(made.train.collate(rows)["target"])
    clean = [
        [i for i in row if i not in (0, 1)] for row in made.train.collate(rows)["source"].tolist()
    ]
    assert clean == [vocabulary.encode(text) for text in (*texts, *texts)]
    sizes = made.train.sampled_lengths(rows, (1, 0))["source"].tolist()
    assert sizes == [len(ids) + 1 for ids in wanted]


def test_words_with_tags_do_not_move() -> None:
    """A tag would stand at another word; typos leave words where they are."""
    text = {"type": "text", "tokenizer": "t"}
    value = {
        "columns": {"text": text, "tags": {"type": "tags", "of": "text"}},
        "train": {"jsonl": {"files": ["a"]}},
        "valid": {"jsonl": {"files": ["a"]}},
    }
    value["columns"]["text"] = {**text, "noise": [{"type": "typos", "rate": 0.1}]}
    DataSettings.model_validate_json(json.dumps(value))
    value["columns"]["text"] = {**text, "noise": [{"type": "drop", "rate": 0.1}]}
    with pytest.raises(ValueError, match="words cannot move"):
        DataSettings.model_validate_json(json.dumps(value))
