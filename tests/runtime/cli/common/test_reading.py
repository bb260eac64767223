"""What commands read: lines of files, and of pipes as they come."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from weft.runtime.cli.common import reading
from weft.runtime.system.arriving import Arriving
from weft.specs.findings import InputError


def test_a_line_that_is_not_utf_8_is_empty(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error gives its place; the other lines are read as a reader of data reads them."""
    source = tmp_path / "in"
    source.write_bytes(b"\xef\xbb\xbfa\r\n\xff\xfe\nb")
    mistakes = reading.Mistakes()

    lines, errors = zip(*reading.decoded_lines(str(source)), strict=True)
    assert lines == ("a", "", "b")
    assert errors[::2] == (None, None)
    mistakes.add(2, errors[1])

    assert f"--> {source}:2" in capsys.readouterr().err
    assert mistakes.exit_code() == 1
    assert "0xff" in mistakes.record(2)["error"]
    assert mistakes.record(2) == mistakes.record(3) == {}


def test_many_mistakes_are_told_once_each_and_then_counted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A file of a million wrong lines gives no million errors."""
    mistakes = reading.Mistakes("rows")
    for number in range(30):
        mistakes.add(number, InputError(f"wrong in way {number}", location=f"a:{number}"))

    assert mistakes.exit_code() == 1
    printed = capsys.readouterr().err
    assert printed.count("error: wrong") == 20
    assert "30 rows could not be answered, 20, 21, 22" in printed


def test_mistakes_of_one_kind_are_told_three_times_and_then_by_number(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A table, none of whose lines is JSON, gives no screen of one sentence; others are seen."""
    mistakes = reading.Mistakes("rows")
    for number in range(1, 100):
        mistakes.add(number, InputError("no JSON", location=f"a:{number}", help="write JSON"))
    mistakes.add(100, InputError("no text", location="a:100"))

    assert mistakes.exit_code() == 1
    printed = capsys.readouterr().err
    assert printed.count("error: no JSON") == 3
    assert "error: no text" in printed
    numbers = ", ".join(map(str, range(4, 24)))
    assert f"100 rows could not be answered, {numbers}, ... among them" in printed


def test_a_wrong_item_of_a_batch_is_found_and_the_others_are_answered() -> None:
    """Whatever the predictor refuses, and wherever the item is."""
    told: dict[int, str] = {}

    def answer(items: Sequence[int]) -> list[int]:
        for item in items:
            if item < 0:
                raise InputError(f"{item} is wrong")
        return [10 * item for item in items]

    items = [1, -2, 3, 4, -5, 6, -7]
    found = reading.answers_of(answer, items, lambda at, error: told.update({at: error.problem}))

    assert found == [10, None, 30, 40, None, 60, None]
    assert told == {1: "-2 is wrong", 4: "-5 is wrong", 6: "-7 is wrong"}


def test_lines_of_a_pipe_arrive_and_those_of_a_file_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Standard input may be either, or an object that is not a file of the system."""
    path = tmp_path / "in"
    path.write_text("a\n")
    read, write = os.pipe()
    os.close(write)

    assert not isinstance(reading.as_it_arrives([], str(path), 1), Arriving)
    with path.open() as file, os.fdopen(read) as pipe:
        for stdin, arrives in ((file, False), (pipe, True), (io.StringIO(), False)):
            monkeypatch.setattr(sys, "stdin", stdin)
            assert isinstance(reading.as_it_arrives([], None, 1), Arriving) is arrives


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
def test_only_a_terminal_shows_a_prompt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One before each line and before the end of input, whose line is ended.

    A file that is read beside a terminal has none, nor has a terminal if stderr is none.
    """
    keys, side = os.openpty()
    typed = iter([b"sun\n", b"moon\n", b"\x04"])
    prompt = reading._prompt

    def prompted() -> None:
        prompt()
        os.write(keys, next(typed))

    monkeypatch.setattr(reading, "_prompt", prompted)
    with os.fdopen(side) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        assert not reading.prompts(None)
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        assert reading.prompts("-")
        assert not reading.prompts("in.txt")
        lines = (line for line, _ in reading.decoded_lines(None))
        assert list(reading.as_it_arrives(lines, None, 2)) == ["sun", "moon"]
    os.close(keys)

    assert capsys.readouterr().err == "> > > \n"
