"""What commands read: lines of files, and of pipes as they come."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest
from weft.runtime.cli.common import reading
from weft.runtime.system.arriving import Arriving


def test_a_line_that_is_not_utf_8_is_empty(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The warning gives its number; the other lines are kept."""
    source = tmp_path / "in"
    source.write_bytes(b"a\n\xff\xfe\nb")

    assert list(reading.text_lines(str(source), "it is skipped")) == ["a", "", "b"]
    assert capsys.readouterr().err == "warning: line 2: not UTF-8, so it is skipped\n"


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
        lines = reading.text_lines(None, "it is skipped")
        assert list(reading.as_it_arrives(lines, None, 2)) == ["sun", "moon"]
    os.close(keys)

    assert capsys.readouterr().err == "> > > \n"
