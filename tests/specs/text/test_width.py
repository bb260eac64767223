"""Width of text in character cells."""

from __future__ import annotations

import unicodedata

import pytest
from weft.specs.json_tree import cells, spot


@pytest.mark.parametrize(
    ("text", "width"),
    [
        ("dog", 3),
        ("中国", 4),
        ("ｱｲ", 2),
        ("\uff21\uff22", 4),
        ("naïve", 5),
        (unicodedata.normalize("NFD", "naïve"), 5),
        (unicodedata.normalize("NFD", "한국어"), 6),
        ("שלום", 4),
        ("مَرْحَبًا", 5),
        ("สวัสดี", 4),
        ("\u200bdog\ufeff", 3),
        ("👍", 2),
        ("👍🏽", 2),
        ("👨\u200d👩\u200d👧", 2),
        ("❤", 1),
        ("❤\ufe0f", 2),
        ("🇩🇪", 2),
        ("", 0),
    ],
)
def test_cells_of_a_text(text: str, width: int) -> None:
    """Wide characters count twice, marks and joiners nothing, and an emoji twice as a whole."""
    assert cells(text) == width


def test_marks_stand_below_wide_characters() -> None:
    """The line of a finding: the marks begin where the value begins on a terminal."""
    text = '{"doc": "编码器", "use": "国"}'

    line, marks = spot(text, "/use").quoted()

    assert cells(marks.rstrip("^")) == cells(line.partition('"国"')[0])
    assert marks.count("^") == cells('"国"')
