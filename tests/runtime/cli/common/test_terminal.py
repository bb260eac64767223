"""Lines of text from and to files, and progress: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import errno
import io
import os
import re
from pathlib import Path

import pytest
from rich.console import Console
from weft.runtime.cli.common import terminal
from weft.runtime.cli.common.terminal import LINES, Reporter
from weft.runtime.cli.main import main
from weft.runtime.system.detail import Detail
from weft.runtime.system.executors.units import WorkUnit, WorkUnits
from weft.runtime.train.context import Progress


def seen(update: int, updates: int) -> Progress:
    """Return a report of one update."""
    return Progress(
        update=update,
        updates=updates,
        epoch=1,
        loss=2.5,
        nll=2.0,
        rate=7e-4,
        tokens_per_second=1234.0,
        target_tokens_per_second=600.0,
    )


def test_a_terminal_sees_a_bar_with_speed_loss_and_rate() -> None:
    """Preparation and training each have a bar; log lines appear above the bars."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=160, highlight=False)

    with Reporter(console).shown() as reporter:
        reporter.prepared("train", 500, None)
        reporter.prepared("train", 1000, 1000)
        reporter.progress(seen(10, 20))
        reporter.validated(10, {"perplexity": 7.389, "bleu": 31.5})
        reporter.progress(seen(20, 20))

    text = out.getvalue()
    assert "1000/1000" in text
    assert "20/20" in text
    assert "loss 2.50  ppl 7.39  lr 7.00e-04  1,234 tok/s" in text
    assert "update 10: valid perplexity 7.39  BLEU 31.50" in text


def test_a_file_gets_a_few_plain_lines() -> None:
    """A run of any length logs about forty lines, including the last update."""
    out = io.StringIO()

    with Reporter(Console(file=out, width=200)).shown() as reporter:
        for update in range(10, 10_001, 10):
            reporter.progress(seen(update, 10_000))

    lines = out.getvalue().splitlines()
    assert LINES <= len(lines) <= LINES + 2
    assert lines[-1].startswith("update 10000/10000")
    assert "\x1b" not in out.getvalue()


def test_a_logged_line_commands_no_terminal() -> None:
    """A line of a training may quote a stranger's file."""
    out = io.StringIO()

    Reporter(Console(file=out, width=200)).log("a\x1b[2Jb\x9bc")

    assert out.getvalue() == "a\\u001b[2Jb\\u009bc\n"


def test_a_line_says_how_long_the_rest_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 100 updates, 20 took 10 minutes since the first report, so 70 take 35."""
    out, clock = io.StringIO(), iter([0.0, 600.0])
    monkeypatch.setattr(terminal.time, "monotonic", lambda: next(clock))
    reporter = Reporter(Console(file=out, width=200))

    reporter.progress(seen(10, 100))
    reporter.progress(seen(30, 100))

    assert out.getvalue().endswith("tok/s  left 35 min\n")


@pytest.mark.parametrize("verbose", [False, True])
def test_details_are_printed_if_the_user_asks(*, verbose: bool) -> None:
    """Kernels and unpadding interest those who measure them."""
    out = io.StringIO()

    with terminal.configured(quiet=False, verbose=verbose):
        reporter = Reporter(Console(file=out, width=200))
        reporter.log(Detail("kernels: fused"))
        reporter.log("trained")

    assert out.getvalue() == "kernels: fused\n" * verbose + "trained\n"


def test_an_output_file_appears_when_it_is_complete(tmp_path: Path) -> None:
    """Until then its lines are in the partial file, and an older file stays as it was."""
    out = tmp_path / "new" / "out.txt"
    with terminal.writing(str(out)) as file:
        file.write("first\n")
        file.flush()
        assert not out.exists()
    with pytest.raises(UnicodeEncodeError), terminal.writing(str(out)) as file:
        file.writelines(["second\n", "\ud800"])

    assert out.read_text() == "first\n"
    assert (out.parent / "out.txt.partial").read_text() == "second\n"


def test_a_link_to_an_output_file_is_followed(tmp_path: Path) -> None:
    """The file that it points to is replaced; the link stays."""
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)

    with terminal.writing(str(link)) as file:
        file.write("new\n")

    assert link.is_symlink()
    assert target.read_text() == "new\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "target"]


def test_a_failure_before_the_first_line_leaves_no_file(tmp_path: Path) -> None:
    """An empty partial file would only be in the way."""
    with pytest.raises(RuntimeError), terminal.writing(str(tmp_path / "out.txt")):
        raise RuntimeError

    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_has_gone_does_not_end_a_training() -> None:
    """`weft train ... 2>&1 | head` closes the pipe; the training goes on without its log."""
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as stream:
        reporter = Reporter(terminal.console(stream))
        counter = terminal.LineCounter("lines", stream=stream, clock=lambda: 0.0)

        reporter.log("first")
        reporter.log("second")
        counter.more(1)
        counter.close()

        assert os.path.samestat(os.fstat(stream.fileno()), Path(os.devnull).stat())


def test_a_full_disk_is_a_message(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errors of the system come with a number, and not always with a file."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("weft.runtime.cli.specs.showing.render", full)

    assert main(["show", "transformer-tiny"]) == 1
    printed = capsys.readouterr().err
    assert "error: cannot read or write: No space left on device" in printed
    assert "free disk space" in printed


def test_a_terminal_sees_the_units_that_are_not_done() -> None:
    """What is wrong comes first, then what runs; the line below counts all of them."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=160, highlight=False)
    units = WorkUnits[None](done=12, rows=12_000)
    for number, state in enumerate(("queued", "running", "lost")):
        first = number * 1000 + 1
        name = f"lines {first:,}-{first + 999:,}"
        unit = WorkUnit(number, name, 1000, f"in:{first}", None)
        unit.enter(state)  # type: ignore[arg-type]
        (units.wrong if state == "lost" else units.pending).append(unit)
    units.wrong[0].problem = "a worker process ended: SIGKILL"

    with Reporter(console).shown() as reporter:
        reporter.watch(units)
        reporter.counted("translated", units.rows, None, "lines")

    lines = [line.strip()[1:-1].split("│") for line in _plain(out).splitlines() if "│" in line]
    assert [[cell.strip() for cell in line[:2]] for line in lines][-4:] == [
        ["lines 2,001-3,000", "lost"],
        ["", "a worker process ended: SIGKILL"],
        ["lines 1,001-2,000", "running"],
        ["lines 1-1,000", "queued"],
    ]
    assert "12 done, 1 running, 1 queued, 1 lost" in _plain(out)
    assert "12000/?" in _plain(out)


def _plain(out: io.StringIO) -> str:
    """Return what was written without the codes of a terminal."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue())
