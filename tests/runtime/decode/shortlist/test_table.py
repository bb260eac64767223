"""Shortlists: the tokens of a source, how they are made, and the files that are refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from weft.runtime.data.symbols import Symbols
from weft.runtime.decode.shortlist.making import make_shortlist, read_table
from weft.runtime.decode.shortlist.table import Measurement, Shortlist, open_shortlist
from weft.specs.findings import InputError

# Ids 0 to 3 are special tokens.
SOURCE = Symbols(["dog", "cat", "Anna"])
TARGET = Symbols(["Hund", "Katze", "Kater", "der", "Anna"])
DOG, CAT, ANNA = 4, 5, 6
HUND, KATZE, KATER, DER, ANNA_TOO = range(4, 9)
WEIGHTS = {(DOG, HUND): 5.0, (DOG, DER): 2.0, (CAT, KATER): 3, (CAT, KATZE): 3, (CAT, DER): 4}
MEASURED = Measurement(
    lines=10, bleu=30.0, bleu_shortlist=29.95, tokens=7.5, weights="w", settings={}
)


def made(**sizes: int) -> Shortlist:
    """Return a shortlist of the weights above."""
    given = {"frequent": 1, "per_token": 2, **sizes}
    frequencies = {DER: 7, HUND: 5, KATZE: 5}
    return make_shortlist(WEIGHTS, frequencies, (SOURCE, TARGET), origin={"from": "test"}, **given)


def measured(**changes: Any) -> Shortlist:
    """Return the shortlist with a measurement."""
    one = made()
    about = {"measured": MEASURED.model_copy(update=changes)}
    return replace(one, about=one.about.model_copy(update=about))


def test_candidates_are_the_best_of_each_source_token() -> None:
    """By hand: the two largest weights, ties to the lowest id, and the same piece as a copy."""
    found = made()

    assert found.starts.tolist() == [0, 0, 0, 0, 0, 2, 4, 5]
    assert found.candidates.tolist() == [HUND, DER, DER, KATZE, ANNA_TOO]
    assert found.frequent.tolist() == [DER]
    assert made(frequent=2, per_token=1).frequent.tolist() == [DER, HUND]
    assert made(frequent=5, per_token=1).frequent.tolist() == [DER, HUND, KATZE, 0, 1]
    assert made(frequent=99, per_token=1).candidates.tolist() == [HUND, DER, ANNA_TOO]
    assert sorted(made(frequent=99).frequent.tolist()) == [*range(9)]
    assert found.about.made == {"from": "test", "frequent": 1, "each": 2}


def test_a_source_allows_the_frequent_tokens_and_its_candidates() -> None:
    """Each source by itself; a repeated token counts once, one beyond the table has nothing."""
    own_NV = made().allowed([[DOG, DOG, 1], [CAT, ANNA, 99], [], [1]], 11)

    assert [row.nonzero()[:, 0].tolist() for row in own_NV] == [
        [HUND, DER],
        [KATZE, DER, ANNA_TOO],
        [DER],
        [DER],
    ]


def test_tables_begin_with_the_source_piece_or_as_marian_does_with_the_target_piece(
    tmp_path: Path,
) -> None:
    """Pieces that are not in a vocabulary are left out; the last line of a pair counts."""
    own, marian = tmp_path / "table", tmp_path / "lex.s2t"
    own.write_text("dog Hund 0.5\n\ndog\tder  0.25\nNULL der 0.5\ncat Hamster 1\ndog Hund 0.75\n")
    marian.write_text("Hund dog 0.75\nder dog 2.5e-1\nder NULL 0.5\nNULL dog 0.5\n</s> dog 1\n")

    expected = {(DOG, HUND): 0.75, (DOG, DER): 0.25}
    assert read_table(str(own), (SOURCE, TARGET), "source") == expected
    assert read_table(str(marian), (SOURCE, TARGET), "target") == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("dog Hund 0.5\ndog Hund\n", "table:2"),
        ("dog Hund viel\n", "table:1"),
        ("dog Hund nan\n", "two pieces and a probability"),
        ("dog Hund -1\n", "two pieces and a probability"),
        ("dog Hund der 0.5\n", "'source-piece target-piece probability'"),
        ("Hund dog 0.5\n", "--lex the target piece"),
        ("", "no line has pieces"),
    ],
)
def test_wrong_tables_are_refused(tmp_path: Path, text: str, problem: str) -> None:
    """With the line, and what to write instead."""
    (tmp_path / "table").write_text(text)

    with pytest.raises(InputError, match=problem):
        read_table(str(tmp_path / "table"), (SOURCE, TARGET), "source")


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Tensors, sizes and measurement."""
    one = measured()

    one.write(tmp_path / "one")
    found = open_shortlist(tmp_path / "one")

    assert found == one
    assert found.about == one.about
    assert (found != made(per_token=1), found != made(frequent=2)) == (True, True)
    assert hash(found) == hash(one)


def test_other_files_are_refused(tmp_path: Path) -> None:
    """Text, tensors of something else, another version, missing tensors, impossible values."""
    (tmp_path / "text").write_text("dog Hund 0.5\n")
    save_file({"weight": torch.zeros(2)}, tmp_path / "weights")
    about = made().about.model_dump(mode="json")
    tensors = {name: getattr(made(), name) for name in ("starts", "candidates", "frequent")}

    def saved(name: str, about: dict[str, Any], **changes: torch.Tensor) -> None:
        metadata = {"weft_shortlist": json.dumps(about)}
        save_file({**tensors, **changes}, tmp_path / name, metadata)

    saved("newer", {**about, "format": 2})
    saved("other", {**about, "colour": "red"})
    saved("floats", about, candidates=torch.zeros(5))
    saved("short", about, candidates=torch.zeros(4, dtype=torch.int32))
    saved("square", about, candidates=torch.zeros(5, 1, dtype=torch.int32))
    saved("mixed", about, starts=torch.tensor([0, 3, 2, 5]))
    saved("negative", about, frequent=torch.tensor([-1], dtype=torch.int32))
    save_file({"starts": tensors["starts"]}, tmp_path / "less", {"weft_shortlist": "{}"})

    names = (
        "text",
        "weights",
        "newer",
        "other",
        "floats",
        "short",
        "square",
        "mixed",
        "negative",
        "less",
    )
    for name in (*names, "missing"):
        with pytest.raises(InputError, match=r"not a shortlist|damaged|has format|no file"):
            open_shortlist(tmp_path / name)


def test_a_shortlist_belongs_to_two_tokenizers() -> None:
    """Their ids mean other pieces elsewhere."""
    measured().refuse_other("list", SOURCE, TARGET, "w")
    with pytest.raises(InputError, match="another source tokenizer"):
        measured().refuse_other("list", TARGET, TARGET, "w")
    with pytest.raises(InputError, match="another target tokenizer"):
        measured().refuse_other("list", SOURCE, SOURCE, "w")
    larger = replace(measured(), frequent=torch.tensor([9], dtype=torch.int32))
    with pytest.raises(InputError, match="damaged"):
        larger.refuse_other("list", SOURCE, TARGET, "w")


def test_a_shortlist_is_measured_with_the_weights_that_use_it() -> None:
    """One that was not, or that loses more than 0.1 BLEU, is refused unless it is unchecked."""
    with pytest.raises(InputError, match="was not measured") as error:
        made().refuse_other("list", SOURCE, TARGET, "w")
    assert "--unchecked" in error.value.help
    with pytest.raises(InputError, match=r"measured with another checkpoint(.|\n)*--unchecked"):
        measured().refuse_other("list", SOURCE, TARGET, "other")
    with pytest.raises(InputError, match=r"loses 0\.11 BLEU"):
        measured(bleu_shortlist=29.89).refuse_other("list", SOURCE, TARGET, "w")
    measured(bleu_shortlist=29.9).refuse_other("list", SOURCE, TARGET, "w")
    measured(bleu_shortlist=31).refuse_other("list", SOURCE, TARGET, "w")
    free = made().about.model_copy(update={"unchecked": True})
    replace(made(), about=free).refuse_other("list", SOURCE, TARGET, "w")
