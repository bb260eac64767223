"""Test that a run that is killed repeatedly ends with the same bits as an undisturbed run.

    python benchmarks/kill_drill.py --kills 50                  one process
    python benchmarks/kill_drill.py --kills 50 --processes 2    two processes under torchrun
    python benchmarks/kill_drill.py --kills 50 --processes 2 --data fsdp    with sharded weights
    python benchmarks/kill_drill.py --kills 50 --folder DIR     continues an interrupted drill
    python benchmarks/kill_drill.py --kills 50 --r-drop DIR     R-Drop on Multi30k, which is in DIR

A tiny model is trained for 300 updates on a small generated corpus.  With one process, the
command is killed with SIGKILL and restarted with --resume.  With two or more, one random worker
is killed, and torchrun restarts the workers.

Kills are spread over the run.  Each kill waits until its update is reached and all workers are
running and have made updates since their start, and then for a random time, so that some kills
hit a checkpoint that is being written.  If the workers have been replaced by then, it waits
again.  With one process, one kill in five comes at a random time after a start instead (--early).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kill_drill_runs import write_r_drop, write_run
from safetensors import safe_open

EARLY = 0.2
"""Fraction of the kills, with one process, that do not wait for an update."""
PAUSE = 0.1
"""Least length, in seconds, of the interval from which the time of a kill is drawn."""
PATIENCE = 300.0
"""Seconds without a new checkpoint after which the run counts as hung."""


def main() -> None:
    """Train once undisturbed and once with kills, and compare the results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=50, help="number of kills")
    parser.add_argument("--processes", type=int, default=1, help="number of processes")
    parser.add_argument("--data", choices=("ddp", "fsdp"), default="ddp", help="data parallelism")
    parser.add_argument("--updates", type=int, default=300, help="updates of the run")
    parser.add_argument("--early", type=float, help="fraction of kills right after a start")
    parser.add_argument("--seed", type=int, default=1, help="random seed of the kill times")
    parser.add_argument(
        "--r-drop", type=Path, metavar="DIR", help="drill R-Drop on the Multi30k corpus in DIR"
    )
    parser.add_argument(
        "--folder", type=Path, help="working folder; it is kept, and an interrupted drill continues"
    )
    options = parser.parse_args()
    early = options.early if options.early is not None else EARLY * (options.processes == 1)
    plan = Plan(
        options.kills,
        options.processes,
        options.updates,
        early,
        options.seed,
        options.r_drop,
        options.data,
    )
    with tempfile.TemporaryDirectory() as name:
        folder = options.folder or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        different = Drill(folder, plan).whole()
    sys.exit(bool(different))


@dataclass(frozen=True)
class Plan:
    """Settings of a drill."""

    kills: int
    processes: int
    updates: int
    early: float
    seed: int
    corpus: Path | None = None
    """Folder of Multi30k, for a drill of R-Drop."""
    data: str = "ddp"
    """Data parallelism of several processes; with `fsdp`, checkpoints are sharded too."""

    @property
    def settings(self) -> list[str]:
        """Options of `weft train`; each process needs a batch of an update."""
        if self.processes == 1:
            return []
        fewest = max(2, self.processes)
        settings = [f"--set=accumulate.0.from={fewest}", f"--set=accumulate.1.from={fewest}"]
        if self.data == "fsdp":
            settings += ["--set=parallel.data=fsdp", "--set=checkpoint.sharded=true"]
        return settings

    def goal(self, number: int) -> int | None:
        """Return the update that a kill (counted from 1) waits for; None for an early kill."""
        if random.Random(f"{self.seed} {number}").random() < self.early:
            return None
        return self.updates * number // (self.kills + 1)


class Drill:
    """The undisturbed run and the killed run in a folder, with a log of the kills."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.folder, self.plan = folder.resolve(), plan
        self.run = (
            write_run(self.folder, plan.updates)
            if plan.corpus is None
            else write_r_drop(self.folder, plan.corpus.resolve(), plan.updates)
        )
        self.straight, self.killed = self.folder / "straight", self.folder / "killed"
        self.log = self.folder / "kills.jsonl"
        lines = self.log.read_text().splitlines() if self.log.is_file() else []
        self.kills: list[dict[str, Any]] = [json.loads(line) for line in lines]
        self.began = time.monotonic()
        # Keep Python's bytecode, since the command is started many times.
        self.environ = {**os.environ, "PYTHONPYCACHEPREFIX": str(self.folder / "compiled")}
        self.environ.pop("PYTHONDONTWRITEBYTECODE", None)

    def whole(self) -> list[str]:
        """Run the remaining parts of the drill; return the names of files that differ."""
        if not (self.straight / "averaged").is_dir():
            self.report("undisturbed")
            with self.started(self.straight, 0) as process:
                self.end_of(process)
        self.report("undisturbed: done")
        if not (self.killed / "averaged").is_dir():
            if self.plan.processes == 1:
                self.one()
            else:
                self.many()
        moments = [kill["update"] for kill in self.kills]
        self.report(f"killed {len(moments)} times, newest checkpoint then: {moments}")
        last = f"checkpoints/{self.plan.updates:06d}"
        names = ("averaged/weights", f"{last}/weights", f"{last}/optimizer")
        different = [
            name for name in names if not same_parts(self.straight / name, self.killed / name)
        ]
        if len(moments) < self.plan.kills:
            different.append(f"only {len(moments)} kills")
        same_bits = "bit-identical: weights, optimizer, mean"
        self.report(f"different: {different}" if different else same_bits)
        return different

    def report(self, words: str) -> None:
        """Print a line with the elapsed time."""
        print(f"{time.monotonic() - self.began:7.1f} s  {words}", flush=True)

    @contextmanager
    def started(self, out: Path, restarts: int) -> Iterator[subprocess.Popen[bytes]]:
        """Start or resume a run; the process is terminated when the context ends."""
        train = ["-m", "weft", "train", str(self.run), "--out", str(out), *self.plan.settings]
        train += ["--resume"] if any((out / "checkpoints").glob("[0-9]*")) else []
        launch: list[str] = []
        if self.plan.processes > 1:
            launch = ["-m", "torch.distributed.run", "--standalone", "--monitor-interval=0.1"]
            launch += [f"--nproc-per-node={self.plan.processes}", f"--max-restarts={restarts}"]
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *launch, *train], stdout=log, stderr=log, env=self.environ
            )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()

    def newest(self) -> int:
        """Return the update of the newest checkpoint, or 0."""
        names = [p.name for p in (self.killed / "checkpoints").glob("[0-9]*")]
        return max(map(int, names), default=0)

    def until(self, ready: Callable[[], bool], process: subprocess.Popen[bytes], what: str) -> None:
        """Wait until `ready()`; exit if the process ends or makes no checkpoint in time."""
        late, last = time.monotonic() + PATIENCE, self.newest()
        while not ready():
            if process.poll() is not None:
                sys.exit(
                    f"the run ended by itself with code {process.returncode}; see {self.folder}/log"
                )
            if (now := self.newest()) != last:
                late, last = time.monotonic() + PATIENCE, now
            if time.monotonic() > late:
                sys.exit(f"no new checkpoint in {PATIENCE:.0f} s, {what}; see {self.folder}/log")
            time.sleep(0.01)

    def round(self) -> float:
        """Return the seconds between checkpoints, the interval from which kill times are drawn."""
        times = []
        for path in (self.killed / "checkpoints").glob("[0-9]*"):
            with suppress(OSError):  # the checkpoint may just have been removed
                times.append(path.stat().st_mtime)
        last = sorted(times)[-2:]
        # The interval is long if a restart lies between; limit it.
        return min(max(PAUSE, last[-1] - last[0]), 10 * PAUSE)

    def reached(self, goal: int, process: subprocess.Popen[bytes], watched: set[int]) -> None:
        """Wait for a checkpoint, or for the end of one of the watched processes."""
        self.until(
            lambda: self.newest() >= goal or not all(map(alive, watched)), process, "no update"
        )

    def end_of(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for the run to end; exit if it failed."""
        if process.wait():
            sys.exit(f"the run ended with exit code {process.returncode}; see {self.folder}/log")

    def note(self, victim: str, since: float) -> None:
        """Log a kill."""
        kill = {"update": self.newest(), "seconds": round(time.monotonic() - since, 1)}
        self.kills.append(kill)
        with self.log.open("a") as file:
            file.write(json.dumps(kill) + "\n")
        self.report(
            f"kill {len(self.kills)}/{self.plan.kills}  checkpoint {kill['update']}"
            f"  {victim}, {kill['seconds']} s after the previous kill"
        )

    def one(self) -> None:
        """Kill the command and restart it, for each kill."""
        while len(self.kills) < self.plan.kills:
            since, goal = time.monotonic(), self.plan.goal(len(self.kills) + 1)
            rng, base = random.Random(f"{self.plan.seed} {len(self.kills)} pause"), self.newest()
            with self.started(self.killed, 0) as process:
                if goal is None:
                    time.sleep(rng.uniform(0.5, 8.0))
                else:
                    self.reached(max(goal, base + 1), process, {process.pid})
                    time.sleep(rng.uniform(0.0, self.round()))
                if process.poll() == 0:
                    break  # the run was complete before its last kills
                if process.poll() is not None:
                    sys.exit(f"the run ended by itself with exit code {process.returncode}")
                process.send_signal(signal.SIGKILL)
                process.wait()
            self.note("the command", since)
        with self.started(self.killed, 0) as process:
            self.end_of(process)

    def many(self) -> None:
        """Kill one worker at a time; torchrun restarts them."""
        left = self.plan.kills - len(self.kills)
        # Allow extra restarts, because a restart may fail and is then retried.
        with self.started(self.killed, 2 * left) as process:
            old: set[int] = set()
            while len(self.kills) < self.plan.kills:
                since, number = time.monotonic(), len(self.kills)
                rng = random.Random(f"{self.plan.seed} {number} pause")
                rank = None
                while rank is None:
                    rank = self.struck(process, old, self.plan.goal(number + 1), rng)
                self.note(f"worker {rank}", since)
            self.end_of(process)

    def struck(
        self,
        process: subprocess.Popen[bytes],
        old: set[int],
        goal: int | None,
        rng: random.Random,
    ) -> int | None:
        """Kill a random worker at a random time once all workers are running.

        Args:
            process: torchrun.
            old: previous workers, which must be gone first; updated to the current workers.
            goal: update to wait for; None waits only for the workers and then some seconds.
            rng: source of the worker and the time.

        Returns:
            Rank of the killed worker; None if the workers were replaced before the kill.
        """
        found: set[int] = set()

        def up() -> bool:
            found.clear()
            found.update(workers(process.pid))
            return len(found) == self.plan.processes and not found & old

        self.until(up, process, "workers are not up")
        if goal is None:
            time.sleep(rng.uniform(0.0, 8.0))
        else:
            self.reached(max(goal, self.newest() + 1), process, found)
            time.sleep(rng.uniform(0.0, self.round()))
        if set(workers(process.pid)) != found:
            self.report("the workers were replaced: waiting again")
            return None
        rank = rng.randrange(len(found))
        os.kill(sorted(found)[rank], signal.SIGKILL)
        old.clear()
        old.update(found)
        return rank


def alive(process: int) -> bool:
    """Return whether a process is running."""
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def workers(parent: int) -> list[int]:
    """Return the training processes started by a parent process."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            status = (path / "stat").read_text().rpartition(")")[2].split()
            if int(status[1]) != parent or status[0] == "Z":
                continue
            train = b"train" in (path / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if train:
            found.append(int(path.name))
    return found


def same_parts(a: Path, b: Path) -> bool:
    """Return whether two safetensors files, or the shards of two folders, have equal tensors.

    Args:
        a: path of a file without its suffix, or of a folder of shards.
        b: path of the other one.
    """
    if not a.is_dir():
        return same(a.with_suffix(".safetensors"), b.with_suffix(".safetensors"))
    shards = sorted(path.name for path in a.glob("*.safetensors"))
    return (
        bool(shards)
        and shards == sorted(p.name for p in b.glob("*.safetensors"))
        and all(same(a / name, b / name) for name in shards)
    )


def same(a: Path, b: Path) -> bool:
    """Return whether two safetensors files have equal tensors."""
    with safe_open(a, "pt") as left, safe_open(b, "pt") as right:
        names = sorted(left.keys())
        return names == sorted(right.keys()) and all(
            left.get_tensor(n).equal(right.get_tensor(n)) for n in names
        )


if __name__ == "__main__":
    main()
