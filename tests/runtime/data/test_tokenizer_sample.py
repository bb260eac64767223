"""Tokenizer sample: the requested number of lines, evenly, in order and deterministic."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from weft.runtime.data import preparation
from weft.runtime.data.preparation import sampled


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, Path]]:
    """Return two groups of two files, of 25 and 10 lines, read in blocks of 10."""
    monkeypatch.setattr(preparation, "BLOCK", 10)
    made = []
    for name, count in (("a", 25), ("b", 10)):
        paths = tmp_path / f"{name}.x", tmp_path / f"{name}.y"
        for path in paths:
            path.write_text("".join(f"{path.name} {row}\n" for row in range(count)))
        made.append((paths[0], paths[1]))
    return made


def test_few_lines_are_all_taken_in_order(groups: list[tuple[Path, Path]]) -> None:
    """Sides alternate, file after file; the last progress report is the total."""
    progress: list[int] = []

    lines = list(sampled(groups, [25, 10], 1000, progress.append))

    assert lines[:4] == ["a.x 0", "a.y 0", "a.x 1", "a.y 1"]
    assert lines[50:52] == ["b.x 0", "b.y 0"]
    assert len(lines) == len(set(lines)) == 70
    assert progress == [10, 20, 25, 35]


def test_lines_are_sampled_evenly(groups: list[tuple[Path, Path]]) -> None:
    """35 of 70: the requested number, half of each block, without repetition, deterministic."""
    lines = list(sampled(groups, [25, 10], 35, lambda _: None))

    assert len(lines) == len(set(lines)) == 35
    blocks = Counter((line[0], int(line.split()[1]) // 10) for line in lines)
    assert blocks == {("a", 0): 10, ("a", 1): 10, ("a", 2): 5, ("b", 0): 10}
    assert lines == list(sampled(groups, [25, 10], 35, lambda _: None))
    everything = list(sampled(groups, [25, 10], 70, lambda _: None))
    assert lines == [line for line in everything if line in set(lines)]


def test_one_side_may_be_sampled(groups: list[tuple[Path, Path]]) -> None:
    """As for separate tokenizers."""
    lines = list(sampled([(left,) for left, _ in groups], [25, 10], 7, lambda _: None))

    assert len(lines) == 7
    assert all(".x" in line for line in lines)
