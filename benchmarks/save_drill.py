"""Test that a run goes on after a kill, or a full disk, at every file operation of its saves.

    python benchmarks/save_drill.py                    SIGKILL at every file operation
    python benchmarks/save_drill.py --mode full        a full disk from every file operation on
    python benchmarks/save_drill.py --mode inodes      a real disk (tmpfs) that takes N files
    python benchmarks/save_drill.py --mode size        a real limit on the size of files
    python benchmarks/save_drill.py --mode outputs     a full disk in other commands
    python benchmarks/save_drill.py --step 10          every tenth operation only

A tiny model is trained for 8 updates with a checkpoint every 2, of which 2 are kept, and the mean
of the last 2.  First the file operations of the run below its folder are counted, by
`tools/file_faults.py`.  Then, for each of them, a new run meets the fault there.  After it, every
checkpoint with its final name must be complete, `weft train` must go on (with --resume if there
is a checkpoint), and the final weights, optimizer state and mean must have the same bits as those
of an undisturbed run.  With a full disk, the command must also end with exit code 1 and a message.

The trials are processes forked from one that has imported everything, so each takes about a
second.  `--mode inodes` needs Linux, and no root: it mounts the disk in a user namespace.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

import torch
from kill_drill import same, write_run
from weft.runtime.checkpoint.checkpoint import open_checkpoint
from weft.runtime.cli.main import main as run_command
from weft.runtime.train.retention import checkpoints
from weft.specs.regular_files import DamagedError

sys.path.append(str(Path(__file__).parents[1] / "tools"))
from file_faults import Mode, inject

UPDATES = 8
SWAP = ("swap", "transformer-tiny", "**[use=attention@1]", "--use", "linear_attention@1")
FINAL = (
    f"checkpoints/{UPDATES:06d}/weights.safetensors",
    f"checkpoints/{UPDATES:06d}/optimizer.safetensors",
    "averaged/weights.safetensors",
)
"""Files that must have the same bits after every trial."""
SPACE = "64m"
"""Size of the disk of `--mode inodes`."""
Fault = Literal["kill", "full", "inodes", "size", "outputs"]


def main() -> None:
    """Run all trials and exit with 1 if one of them failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--mode", choices=("kill", "full", "inodes", "size", "outputs"), default="kill"
    )
    parser.add_argument("--step", type=int, default=1, help="distance of the tried operations")
    parser.add_argument("--first", type=int, default=1, help="first operation that is tried")
    parser.add_argument("--last", type=int, default=1_000_000, help="last operation that is tried")
    parser.add_argument("--folder", type=Path, help="working folder; it is kept")
    options = parser.parse_args()
    if options.mode == "inodes" and os.geteuid() != 0:
        # The namespace makes this process root over its own mounts only.
        os.execvp("unshare", ["unshare", "-rm", sys.executable, *sys.argv])
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = options.folder or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        drill = Drill(folder.resolve())
        tried = range(options.first, options.last + 1, options.step)
        problems = drill.whole(options.mode, tried)
    sys.exit(bool(problems))


def forked(work: Callable[[], int], log: Path) -> int:
    """Run a function in a forked process; return its exit code, negative if a signal ended it.

    Args:
        work: returns the exit code.
        log: file for its output.
    """
    sys.stdout.flush()
    reader, writer = os.pipe()  # not a file, whose size may be limited
    child = os.fork()
    if child == 0:
        os.dup2(writer, 1)
        os.dup2(writer, 2)
        os.close(reader)
        os.close(writer)
        code = 70
        try:
            code = work()
        except BaseException:  # noqa: BLE001 - the parent reports it
            traceback.print_exc()
        finally:
            with suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, "rb") as output:
        log.write_bytes(output.read())
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


class Drill:
    """The undisturbed run, and trials in folders next to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run = write_run(folder, UPDATES)
        settings = json.loads(self.run.read_text())
        settings["checkpoint"] = {"every": 2, "keep": 2, "average": 2}
        settings["evaluate"] = {"every": 4, "best": "nll", "samples": 0}
        self.run.write_text(json.dumps(settings))
        self.straight, self.log = folder / "straight", folder / "log"
        self.loaded = folder / "loaded"
        self.began = time.monotonic()
        self.problems: list[str] = []

    def report(self, words: str) -> None:
        """Print a line with the elapsed time."""
        print(f"{time.monotonic() - self.began:7.1f} s  {words}", flush=True)

    def new(self, out: Path) -> Path:
        """Return a new folder of a run; its data are prepared, as after `weft prepare`."""
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(self.straight / "prepared", out / "prepared")
        return out

    def train(self, out: Path, before: Callable[[], object] = lambda: None) -> int:
        """Start or resume the run in a forked process; return its exit code."""
        resume = ["--resume"] if checkpoints(out) else []

        def work() -> int:
            before()
            code = run_command(["train", str(self.run), "--out", str(out), *resume])
            if out == self.straight:
                self.loaded.write_text("\n".join(sys.modules))
            return code

        return forked(work, self.log)

    def whole(self, mode: Fault, tried: range) -> list[str]:
        """Run the trials of a mode; return the problems."""
        if self.train(self.straight):
            sys.exit(f"the undisturbed run failed:\n{self.log.read_text()}")
        for name in self.loaded.read_text().split():  # so that the trials need not import them
            with suppress(Exception):
                importlib.import_module(name)
        if mode == "outputs":
            return self.outputs(tried.step)
        if mode == "inodes":
            return self.inodes(tried.step)
        if mode == "size":
            return self.sizes()
        operations = self.count(mode)
        kinds = Counter(line.split()[1] for line in operations)
        self.report(f"{len(operations)} operations: {dict(kinds)}")
        done = 0
        for at in (number for number in tried if number <= len(operations)):
            out = self.new(self.folder / "trial")
            code = self.train(out, lambda: inject(out, mode, at))  # noqa: B023 - runs at once
            wanted = -signal.SIGKILL if mode == "kill" else 1
            self.check(f"operation {operations[at - 1]}", out, code, wanted)
            done += 1
            if done % 25 == 0:
                self.report(f"{done} faults")
        self.report(f"{done} faults, {len(self.problems)} problems")
        return self.problems

    def count(self, mode: Mode) -> list[str]:
        """Return the operations of an undisturbed run, in order: number, name and path."""
        listed = self.folder / "operations"
        listed.unlink(missing_ok=True)
        out = self.new(self.folder / "trial")

        def watch() -> None:
            faults = inject(out, mode, at=1_000_000_000, log=listed)
            faults.at = sys.maxsize

        if self.train(out, watch):
            sys.exit(f"the counted run failed:\n{self.log.read_text()}")
        return listed.read_text().splitlines()

    def check(self, what: str, out: Path, code: int, wanted: int) -> None:
        """Check the state after a fault, continue the run and compare its end."""
        message = self.log.read_text(errors="replace")
        problems = []
        if code != wanted:
            problems.append(f"exit code {code}, not {wanted}")
        if wanted == 1 and ("error: " not in message or "Traceback" in message):
            problems.append("no message")
        if forked(lambda: _unsound(out), self.folder / "unsound"):
            problems.append(f"an incomplete checkpoint: {(self.folder / 'unsound').read_text()}")
        if self.train(out):
            problems.append(f"it does not go on: {self.log.read_text()[-600:]}")
        else:
            problems += [f"{n} differs" for n in FINAL if not same(out / n, self.straight / n)]
            found, usual = _names(out), _names(self.straight)
            if found != usual:
                problems.append(
                    f"left behind {sorted(found - usual)}, lacks {sorted(usual - found)}"
                )
        for problem in problems:
            self.problems.append(f"{what}: {problem}")
            self.report(f"PROBLEM at {what}: {problem}\n{message[-800:]}")

    def inodes(self, step: int) -> list[str]:
        """Train on a real disk that takes only some files, until one suffices."""
        disk = self.folder / "disk"
        disk.mkdir(exist_ok=True)
        number, done = 0, 0
        while True:
            options = f"size={SPACE},nr_inodes=100000"
            subprocess.run(["mount", "-t", "tmpfs", "-o", options, "weft", disk], check=True)
            try:
                out = self.new(disk / "trial")
                used = sum(1 for _ in disk.rglob("*")) + 1
                limit = f"remount,nr_inodes={used + number}"
                subprocess.run(["mount", "-o", limit, disk], check=True)
                code = self.train(out)
                if code == 0:
                    break
                subprocess.run(["mount", "-o", "remount,nr_inodes=100000", disk], check=True)
                self.check(f"a disk that takes {number} files", out, code, 1)
            finally:
                subprocess.run(["umount", disk], check=True)
            done, number = done + 1, number + step
        self.report(
            f"{done} full disks, the run needs {number} files; {len(self.problems)} problems"
        )
        return self.problems

    def sizes(self) -> list[str]:
        """Train with a real limit on the size of each file, until one suffices."""
        sizes = sorted({path.stat().st_size for path in self.straight.rglob("*") if path.is_file()})
        limits = sorted({max(0, size - 1) for size in sizes} | {size // 2 for size in sizes})
        done = 0
        for limit in limits:
            out = self.new(self.folder / "trial")

            def limited(limit: int = limit) -> None:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

            code = self.train(out, limited)
            if code:
                self.check(f"files of at most {limit} bytes", out, code, 1)
                done += 1
        self.report(f"{done} of {len(limits)} limits, {len(self.problems)} problems")
        return self.problems

    def outputs(self, step: int) -> list[str]:
        """Run commands that write an output, with a full disk from every operation on."""
        done, averaged = 0, str(self.straight / "averaged")
        source = self.folder / "valid.src"
        for name, arguments in {
            "prepared": ["prepare", str(self.run), "--out"],
            "mean": ["average", averaged, "-o"],
            "drawn.dot": ["draw", "transformer-tiny", "-o"],
            "drawn.svg": ["draw", "transformer-tiny", "-o"],
            "schema.json": ["schema", "-o"],
            "model.py": ["eject", averaged, "-o"],
            "swapped.json": [*SWAP, "-o"],
            "translated.txt": ["translate", averaged, str(source), "-o"],
        }.items():
            base = self.folder / "outputs"
            shutil.rmtree(base, ignore_errors=True)
            base.mkdir()
            whole = [*arguments, str(base / name)]
            listed = self.folder / "operations"
            listed.unlink(missing_ok=True)

            def counted(whole: list[str] = whole, base: Path = base, listed: Path = listed) -> int:
                inject(base, "full", sys.maxsize, listed)
                return run_command(whole)

            if forked(counted, self.log):
                self.report(f"{name}: skipped, the command failed:\n{self.log.read_text()[-800:]}")
                self.problems.append(f"{name}: the command failed")
                continue
            before = _contents(base)
            for at in range(1, len(listed.read_text().splitlines()) + 1, step):
                # The output of an earlier command must remain, except that `prepare` reuses it.
                if name == "prepared":
                    shutil.rmtree(base)
                    base.mkdir()

                def failing(at: int = at, whole: list[str] = whole, base: Path = base) -> int:
                    inject(base, "full", at)
                    return run_command(whole)

                code, message = forked(failing, self.log), self.log.read_text()
                done += 1
                problems = [] if code == 1 else [f"exit code {code}"]
                problems += (
                    [] if "error: " in message and "Traceback" not in message else ["no message"]
                )
                if name == "prepared":
                    code = forked(lambda whole=whole: run_command(whole), self.log)  # type: ignore[misc]
                    problems += [f"it does not go on: {self.log.read_text()}"] if code else []
                found = _contents(base)
                found.pop(f"{name}.partial", None)  # the finished lines, as documented
                if found != before:
                    problems.append(f"files differ: {set(found) ^ set(before)}")
                for problem in problems:
                    self.problems.append(f"{name}, operation {at}: {problem}")
                    self.report(f"PROBLEM at {name}, operation {at}: {problem}\n{message[-800:]}")
            self.report(f"{name}: {done} faults so far")
        self.report(f"{done} full disks, {len(self.problems)} problems")
        return self.problems


def _contents(folder: Path) -> dict[str, bytes]:
    """Return the files below a folder, without the lock."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


def _names(out: Path) -> set[str]:
    """Return the files and folders of a run, without those of TensorBoard, which have own names."""
    found = {str(path.relative_to(out)) for path in out.rglob("*")}
    return {name for name in found if not name.startswith("tensorboard/")}


def _unsound(out: Path) -> int:
    """Open every checkpoint of a run; print and count those that are not complete."""
    bad = 0
    for path in [*checkpoints(out), out / "best", out / "averaged"]:
        if not path.is_dir():
            continue
        try:
            open_checkpoint(path)
        except DamagedError as error:
            print(error)
            bad += 1
    return bad


if __name__ == "__main__":
    main()
