"""An error of a training of several processes is printed once, and says where it is."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from .conftest import ENVIRONMENT, Bench

pytestmark = pytest.mark.slow


def errors_of(bench: Bench, *outs: str, more: tuple[str, ...] = ()) -> list[str]:
    """Train the run in processes with folders of their own; return what each prints as errors."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(len(outs))}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "weft", "train", str(bench.file), "--out", out, *more],
            env={**ENVIRONMENT, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, out in enumerate(outs)
    ]
    texts = [process.communicate(timeout=240)[1] for process in processes]
    assert [process.returncode for process in processes] == [1] * len(outs)
    return ["".join(text.partition("error: ")[1:]) for text in texts]


def test_processes_without_a_shared_folder_are_refused_at_the_start(bench: Bench) -> None:
    """Otherwise they train, and cannot be restarted; before an update there is no checkpoint."""
    outs = [bench.folder / "first", bench.folder / "second"]

    main, other = errors_of(bench, *map(str, outs))

    assert main.startswith("error: the folder of the run is not shared: what the main process")
    assert f"cannot be read on {socket.gethostname()}" in " ".join(main.split())
    assert "help: give a folder with --out that is on a file system" in main
    assert other == ""
    assert not outs[1].exists()
    assert not (outs[0] / "checkpoints").exists()


def test_a_folder_that_holds_a_run_is_refused_once(bench: Bench) -> None:
    """The main process looks; another one might see another folder."""
    out = bench.folder / "taken"
    (out / "checkpoints/000004").mkdir(parents=True)

    main, other = errors_of(bench, str(out), str(out))

    assert main.startswith("error: the folder already holds a run")
    assert other == ""


def test_an_error_of_all_is_printed_by_the_main_process(bench: Bench) -> None:
    """A device that does not exist, in each process."""
    out = str(bench.folder / "cuda")

    main, other = errors_of(bench, out, out, more=("--set=device=cuda",))

    assert "CUDA" in main
    assert other == ""
