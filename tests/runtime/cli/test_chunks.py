"""`--processes` and `--on` of commands that answer lines: the same bytes, and nothing is lost."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from weft.runtime.cli.common import chunks
from weft.runtime.cli.main import main
from weft.runtime.train.context import Result

pytestmark = [pytest.mark.integration, pytest.mark.slow]

LINES = ["sun moon", "tree", "river stone bird wind leaf", "", "bird sun"]


@pytest.fixture(scope="module")
def checkpoint(toy_trained: Result) -> str:
    """Return a checkpoint of a barely trained model."""
    return str(toy_trained.checkpoint)


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file of 23 lines, the last of which is not UTF-8, in chunks of 4 lines."""
    monkeypatch.setattr(chunks, "ROWS", 4)
    path = tmp_path / "in.txt"
    path.write_bytes("".join(f"{line}\n" for line in (LINES * 5)[:22]).encode() + b"\xff\n")
    return path


@pytest.mark.parametrize("options", [["--nbest", "2"], ["--json"]])
def test_chunks_have_the_bytes_of_one_process(
    options: list[str],
    checkpoint: str,
    text: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Also the numbers of lines, and what is wrong with one; no other file is left."""
    words = ["translate", checkpoint, str(text), "--beam", "2", *options, "-o"]
    assert main([*words, str(tmp_path / "one")]) == 1
    problem = capsys.readouterr().err

    assert main([*words, str(tmp_path / "two"), "--processes", "2"]) == 1

    assert (tmp_path / "two").read_bytes() == (tmp_path / "one").read_bytes()
    assert f"{text}:23" in problem
    assert f"{text}:23" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "one", "two"]


def test_rows_are_predicted_in_chunks(checkpoint: str, tmp_path: Path) -> None:
    """A wrong row among them has an error in its place."""
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"source": "sun moon"}\n{"source": 1}\n' * 5)
    words = ["predict", checkpoint, str(rows), "-o"]
    assert main([*words, str(tmp_path / "one")]) == 1

    assert main([*words, str(tmp_path / "two"), "--processes", "2"]) == 1

    assert (tmp_path / "two").read_bytes() == (tmp_path / "one").read_bytes()


def test_a_test_set_is_answered_in_chunks(
    checkpoint: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The report and the answers are those of one process; without a file nothing is kept."""
    monkeypatch.setattr(chunks, "ROWS", 4)
    words = ["evaluate", checkpoint, "--beam", "2", "--json"]
    assert main([*words, "-o", str(tmp_path / "one")]) == 0
    report = capsys.readouterr().out

    assert main([*words, "-o", str(tmp_path / "two"), "--processes", "2"]) == 0
    assert capsys.readouterr().out == report
    assert main([*words, "--processes", "2"]) == 0

    assert capsys.readouterr().out == report
    assert (tmp_path / "two").read_bytes() == (tmp_path / "one").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]


def test_a_killed_command_continues(
    checkpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After SIGKILL of the command, chunks that are done are not done again."""
    path, out = tmp_path / "in.txt", tmp_path / "out.txt"
    path.write_text("river stone bird wind leaf\n" * 9000)
    words = ["translate", checkpoint, str(path), "-o", str(out), "--processes", "2"]
    process = subprocess.Popen([sys.executable, "-m", "weft", *words], start_new_session=True)
    work = tmp_path / ".out.txt.work"
    while not list(work.glob("[0-9a-f]*")):
        assert process.poll() is None
        time.sleep(0.05)

    process.send_signal(signal.SIGKILL)

    process.wait()
    done = {path.name for path in work.glob("[0-9a-f]*")}
    assert not out.exists()
    written: list[str] = []
    write = chunks.write_beside
    monkeypatch.setattr(
        chunks,
        "write_beside",
        lambda path, content, what: (written.append(path.name), write(path, content, what)),
    )
    assert main(words) == 0
    assert written
    assert done.isdisjoint(written)
    assert len(done) + len(written) == 9
    assert len(set(out.read_text().splitlines())) == 1
    assert len(out.read_text().splitlines()) == 9000


def test_chunks_need_a_file(
    checkpoint: str, text: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Finished parts are kept beside it."""
    assert main(["translate", checkpoint, str(text), "--processes", "2"]) == 2
    assert "--out FILE" in capsys.readouterr().err
    assert main(["translate", checkpoint, str(text), "-o", "x", "--on", "nothing"]) == 1
    assert "no executor 'nothing'" in capsys.readouterr().err
