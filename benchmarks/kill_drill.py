"""Kill drill: a run that is killed again and again ends with the bits of one that is not.

    python benchmarks/kill_drill.py --kills 50                  one process
    python benchmarks/kill_drill.py --kills 50 --processes 2    two, which torchrun restarts
    python benchmarks/kill_drill.py --kills 50 --folder DIR     goes on where it was stopped

A tiny model is trained for 300 updates on a corpus made on the spot.  With one process the
whole command is killed by SIGKILL and begun again with --resume; with two or more one worker,
drawn at random, is killed, and torchrun begins again by itself.

Kills are spread over the run: each waits until its update is reached, all workers are up and
have made updates since they were started, and then a random moment, so that some hit a
checkpoint that is being written.  Should the workers be others by then, it waits anew.  Of the
kills of one process, one in five comes at a random moment after a start instead (--early).
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

from safetensors import safe_open

WORDS = ("sun", "moon", "tree", "river", "stone", "bird", "wind", "leaf", "fire", "snow")
EVERY = 2
"""Updates between checkpoints."""
EARLY = 0.2
"""Share of the kills of one process that do not wait for an update."""
PAUSE = 0.1
"""Seconds, at least, from which the moment is drawn once an update is reached."""
PATIENCE = 300.0
"""Seconds without a new checkpoint after which the run is given up for hung."""


def main() -> None:
    """Train once undisturbed and once with kills, and compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--updates", type=int, default=300)
    parser.add_argument("--early", type=float, help="share of kills right after a start")
    parser.add_argument("--seed", type=int, default=1, help="of the moments")
    parser.add_argument("--folder", type=Path, help="where it works; kept, and gone on with")
    options = parser.parse_args()
    early = options.early if options.early is not None else EARLY * (options.processes == 1)
    plan = Plan(options.kills, options.processes, options.updates, early, options.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = options.folder or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        different = Drill(folder, plan).whole()
    sys.exit(bool(different))


@dataclass(frozen=True)
class Plan:
    """What is asked for."""

    kills: int
    processes: int
    updates: int
    early: float
    seed: int

    def goal(self, number: int) -> int | None:
        """Return the update that a kill waits for, counted from 1; None for an early one."""
        if random.Random(f"{self.seed} {number}").random() < self.early:
            return None
        return self.updates * number // (self.kills + 1)


def write_run(folder: Path, updates: int) -> Path:
    """Write a corpus of words and the same words in reverse, and a run on it."""
    rng = random.Random(5)
    for name, lines in (("train", 200), ("valid", 20)):
        rows = [rng.choices(WORDS, k=rng.randint(2, 5)) for _ in range(lines)]
        (folder / f"{name}.src").write_text("".join(" ".join(row) + "\n" for row in rows))
        (folder / f"{name}.tgt").write_text("".join(" ".join(row[::-1]) + "\n" for row in rows))
    files = {n: {"source": [f"{n}.src"], "target": [f"{n}.tgt"]} for n in ("train", "valid")}
    run = {
        "format": 2,
        "name": "drill",
        "spec": "transformer-tiny",
        "params": {"d_model": 16, "heads": 2, "d_ff": 32, "layers": 1, "dropout": 0.1},
        "data": {"root": str(folder), **files},
        "tokenizer": {"vocab_size": 40},
        "batch": {"tokens": 200},
        "updates": updates,
        "schedule": {"type": "constant", "rate": 0.003},
        "evaluate": {"every": 50, "best": "nll", "bleu": False},
        "checkpoint": {"every": EVERY, "keep": 5, "average": 5},
        "threads": 1,
        "precision": "float32",
        "kernels": {"product": "torch", "attention": "fused"},
        "device": "cpu",
    }
    path = folder / "run.json"
    path.write_text(json.dumps(run))
    return path


class Drill:
    """The two runs in a folder, and the kills of the second, which are written down."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.folder, self.plan = folder.resolve(), plan
        self.run = write_run(self.folder, plan.updates)
        self.straight, self.killed = self.folder / "straight", self.folder / "killed"
        self.log = self.folder / "kills.jsonl"
        lines = self.log.read_text().splitlines() if self.log.is_file() else []
        self.kills: list[dict[str, Any]] = [json.loads(line) for line in lines]
        self.began = time.monotonic()
        # Started again a hundred times, what Python has compiled should be kept.
        self.environ = {**os.environ, "PYTHONPYCACHEPREFIX": str(self.folder / "compiled")}
        self.environ.pop("PYTHONDONTWRITEBYTECODE", None)

    def whole(self) -> list[str]:
        """Do what is left to do; return the names of files that differ."""
        if not (self.straight / "averaged").is_dir():
            self.say("undisturbed")
            with self.started(self.straight, 0) as process:
                self.end_of(process)
        self.say("undisturbed: done")
        if not (self.killed / "averaged").is_dir():
            if self.plan.processes == 1:
                self.one()
            else:
                self.many()
        moments = [kill["update"] for kill in self.kills]
        self.say(f"killed {len(moments)} times, newest checkpoint then: {moments}")
        last = f"checkpoints/{self.plan.updates:06d}"
        names = ("averaged/weights", f"{last}/weights", f"{last}/optimizer")
        files = [f"{name}.safetensors" for name in names]
        different = [one for one in files if not same(self.straight / one, self.killed / one)]
        if len(moments) < self.plan.kills:
            different.append(f"only {len(moments)} kills")
        same_bits = "bit-identical: weights, optimizer, mean"
        self.say(f"different: {different}" if different else same_bits)
        return different

    def say(self, words: str) -> None:
        """Print a line with the time."""
        print(f"{time.monotonic() - self.began:7.1f} s  {words}", flush=True)

    @contextmanager
    def started(self, out: Path, restarts: int) -> Iterator[subprocess.Popen[bytes]]:
        """Begin a run or go on with it; nothing is left when the context is."""
        train = ["-m", "weft", "train", str(self.run), "--out", str(out)]
        train += ["--resume"] if (out / "checkpoints").is_dir() else []
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
        """Return the newest checkpoint."""
        names = [p.name for p in (self.killed / "checkpoints").glob("[0-9]*")]
        return max(map(int, names), default=0)

    def until(self, ready: Callable[[], bool], process: subprocess.Popen[bytes], what: str) -> None:
        """Wait for something that a running process does."""
        late, last = time.monotonic() + PATIENCE, self.newest()
        while not ready():
            if process.poll() is not None:
                sys.exit(f"it ended by itself with {process.returncode}; see {self.folder}/log")
            if (now := self.newest()) != last:
                late, last = time.monotonic() + PATIENCE, now
            if time.monotonic() > late:
                sys.exit(f"nothing new in {PATIENCE:.0f} s, {what}; see {self.folder}/log")
            time.sleep(0.01)

    def round(self) -> float:
        """Return the seconds from a checkpoint to the next, so that any moment between is drawn."""
        times = []
        for path in (self.killed / "checkpoints").glob("[0-9]*"):
            with suppress(OSError):  # it may just have been dropped
                times.append(path.stat().st_mtime)
        last = sorted(times)[-2:]
        # Across a restart it is a matter of seconds.
        return min(max(PAUSE, last[-1] - last[0]), 10 * PAUSE)

    def reached(self, goal: int, process: subprocess.Popen[bytes], watched: set[int]) -> None:
        """Wait for a checkpoint, or for the end of one of the watched processes."""
        self.until(
            lambda: self.newest() >= goal or not all(map(alive, watched)), process, "no update"
        )

    def end_of(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for the end, which must be a good one."""
        if process.wait():
            sys.exit(f"it ended with {process.returncode}; see {self.folder}/log")

    def note(self, victim: str, since: float) -> None:
        """Write a kill down."""
        kill = {"update": self.newest(), "seconds": round(time.monotonic() - since, 1)}
        self.kills.append(kill)
        with self.log.open("a") as file:
            file.write(json.dumps(kill) + "\n")
        self.say(
            f"kill {len(self.kills)}/{self.plan.kills}  checkpoint {kill['update']}"
            f"  {victim}, {kill['seconds']} s after the one before"
        )

    def one(self) -> None:
        """Kill the whole command, and begin it anew."""
        while len(self.kills) < self.plan.kills:
            since, goal = time.monotonic(), self.plan.goal(len(self.kills) + 1)
            rng, base = random.Random(f"{self.plan.seed} {len(self.kills)} pause"), self.newest()
            with self.started(self.killed, 0) as process:
                if goal is None:
                    time.sleep(rng.uniform(0.5, 8.0))
                else:
                    self.reached(max(goal, base + 1), process, {process.pid})
                    time.sleep(rng.uniform(0.0, self.round()))
                if process.poll() is not None:
                    sys.exit(f"it ended by itself with {process.returncode}")
                process.send_signal(signal.SIGKILL)
                process.wait()
            self.note("the command", since)
        with self.started(self.killed, 0) as process:
            self.end_of(process)

    def many(self) -> None:
        """Kill one worker at a time; torchrun does the rest."""
        left = self.plan.kills - len(self.kills)
        # A restart may fail on its own, and is then tried again.
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
        """Kill a worker at a random moment once all are settled.

        Args:
            process: torchrun.
            old: workers that are to be gone first; becomes those that were there now.
            goal: update to wait for; None waits for workers alone, and then some seconds.
            rng: draws worker and moment.

        Returns:
            Which of them; None where they were others by that moment, and none was killed.
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
            self.say("the workers are others than before: waiting anew")
            return None
        rank = rng.randrange(len(found))
        os.kill(sorted(found)[rank], signal.SIGKILL)
        old.clear()
        old.update(found)
        return rank


def alive(process: int) -> bool:
    """Say whether a process runs."""
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def workers(parent: int) -> list[int]:
    """Return the processes that another one started and that run a training."""
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


def same(a: Path, b: Path) -> bool:
    """Say whether two files hold the same bits."""
    with safe_open(a, "pt") as left, safe_open(b, "pt") as right:
        names = sorted(left.keys())
        return names == sorted(right.keys()) and all(
            left.get_tensor(n).equal(right.get_tensor(n)) for n in names
        )


if __name__ == "__main__":
    main()
