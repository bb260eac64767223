"""A full disk: one message with the path, also if a thread of another library meets it first."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest
from weft.runtime.cli.common import terminal
from weft.runtime.cli.main import main
from weft.runtime.cli.specs import specs


def test_the_path_is_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """TensorBoard opens its files by paths of bytes."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fsencode(tmp_path / "events"))

    monkeypatch.setattr(specs, "load", full, raising=False)
    monkeypatch.setattr("weft.specs.load.load", full)

    assert main(["expand", "transformer-tiny"]) == 1

    error = capsys.readouterr().err
    assert f"--> {tmp_path / 'events'}\n" in error
    assert "free disk space" in error


@pytest.mark.parametrize(
    ("number", "printed"), [(errno.ENOSPC, 0), (errno.EFBIG, 0), (errno.EIO, 1)]
)
def test_a_thread_on_a_full_disk_prints_no_traceback(
    monkeypatch: pytest.MonkeyPatch, number: int, printed: int
) -> None:
    """The error is raised again in the main thread; any other error of a thread is printed."""
    seen: list[BaseException | None] = []
    monkeypatch.setattr(threading, "excepthook", lambda ended: seen.append(ended.exc_value))

    def write() -> None:
        raise OSError(number, os.strerror(number))

    terminal.report_full_disk_once()
    terminal.report_full_disk_once()
    thread = threading.Thread(target=write)
    thread.start()
    thread.join()

    assert len(seen) == printed
