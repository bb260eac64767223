"""The tables of the shipped runs: words of trees with their tags, and which trees validate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from weft.examples.columns import main

TREES = ("(S (DT the) (NN sun))", "(S (NN rain) (VB falls))", "(S (NN leaf))")
ROWS = [
    {"text": "the sun", "tags": "DT NN"},
    {"text": "rain falls", "tags": "NN VB"},
    {"text": "leaf", "tags": "NN"},
]


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file of JSON Lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_validation_trees_are_the_last_of_the_training_trees(tmp_path: Path) -> None:
    """The reported test data take no part in choosing a checkpoint."""
    for split in ("train", "test"):
        (tmp_path / f"{split}.trees").write_text("\n".join(TREES) + "\n", encoding="utf-8")
    files = [f"{split}={tmp_path / split}.trees" for split in ("train", "test")]

    main(["tags", str(tmp_path), *files, "--held-out", "1"])

    assert rows_of(tmp_path / "train.jsonl") == ROWS[:2]
    assert rows_of(tmp_path / "valid.jsonl") == ROWS[2:]
    assert rows_of(tmp_path / "test.jsonl") == ROWS


def test_a_given_validation_file_is_used_whole(tmp_path: Path) -> None:
    """Then no training tree is held out."""
    for split in ("train", "valid"):
        (tmp_path / f"{split}.trees").write_text("\n".join(TREES) + "\n", encoding="utf-8")
    files = [f"{split}={tmp_path / split}.trees" for split in ("train", "valid")]

    main(["tags", str(tmp_path), *files, "--held-out", "1"])

    assert rows_of(tmp_path / "train.jsonl") == rows_of(tmp_path / "valid.jsonl") == ROWS


def test_passages_of_genres_do_not_cross_their_borders(tmp_path: Path) -> None:
    """24 essays and 5 letters give 12 and 2 passages of two; the last essay is held out."""
    trees = tmp_path / "t.trees"
    trees.write_text("".join(f"(TOP (S (NN w{n})))\n" for n in range(29)), encoding="utf-8")

    main(["genres", str(tmp_path), f"train={trees}:essay=1,letter=25", "--passage", "2"])

    train, valid = rows_of(tmp_path / "train.jsonl"), rows_of(tmp_path / "valid.jsonl")
    assert [row["genre"] for row in train] == ["essay"] * 11 + ["letter"] * 2
    assert train[-1]["text"] == "w26 w27"
    assert valid == [{"text": "w22 w23", "genre": "essay"}]
