"""Kill drill: a run that is killed again and again ends with the bits of one that is not.

    python benchmarks/kill_drill.py --kills 50                  one process
    python benchmarks/kill_drill.py --kills 50 --processes 2    two, which torchrun restarts

A tiny model is trained for 300 updates on a corpus made on the spot.  With one process the
whole command is killed by SIGKILL and begun again with --resume; with two or more one worker,
drawn at random, is killed, and torchrun begins again by itself.  Kills are spread over the
run: each waits until its update is reached, and then a random moment, so that some hit a
checkpoint that is being written; one in five comes at a random moment after a start instead.
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
from pathlib import Path

from safetensors import safe_open

WORDS = ("sun", "moon", "tree", "river", "stone", "bird", "wind", "leaf", "fire", "snow")
EVERY = 3
"""Updates between checkpoints."""
EARLY = 0.2
"""Share of the kills that do not wait for an update."""


def main() -> None:
    """Train once undisturbed and once with kills, and compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--updates", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1, help="of the moments")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = write_run(folder, options.updates)
        began = time.monotonic()
        straight = folder / "straight"
        subprocess.run(
            command(run, straight, options.processes, 0), check=True, stderr=subprocess.DEVNULL
        )
        print(f"undisturbed: {time.monotonic() - began:.0f} s", flush=True)
        began = time.monotonic()
        killed = folder / "killed"
        drill = Drill(run, killed, options.updates, options.kills, random.Random(options.seed))
        moments = drill.one() if options.processes == 1 else drill.many(options.processes)
        print(f"killed {len(moments)} times, newest checkpoint then: {moments}")
        print(f"with kills: {time.monotonic() - began:.0f} s")
        names = [
            f"{part}/weights.safetensors"
            for part in ("averaged", f"checkpoints/{options.updates:06d}")
        ] + [f"checkpoints/{options.updates:06d}/optimizer.safetensors"]
        different = [one for one in names if not same(straight / one, killed / one)]
        print(f"different: {different}" if different else "bit-identical: weights, optimizer, mean")
    sys.exit(bool(different))


def write_run(folder: Path, updates: int) -> Path:
    """Write a corpus of words and the same words in reverse, and a run on it."""
    rng = random.Random(5)
    for name, lines in (("train", 200), ("valid", 20)):
        rows = [rng.choices(WORDS, k=rng.randint(2, 5)) for _ in range(lines)]
        (folder / f"{name}.src").write_text("".join(" ".join(row) + "\n" for row in rows))
        (folder / f"{name}.tgt").write_text("".join(" ".join(row[::-1]) + "\n" for row in rows))
    files = {n: {"source": [f"{n}.src"], "target": [f"{n}.tgt"]} for n in ("train", "valid")}
    run = {
        "format": 1,
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


def command(run: Path, out: Path, processes: int, restarts: int) -> list[str]:
    """Return the command that trains."""
    train = ["-m", "weft", "train", str(run), "--out", str(out)]
    if processes == 1:
        return [sys.executable, *train, "--resume"]
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    return [
        sys.executable,
        *launch,
        f"--max-restarts={restarts}",
        "--monitor-interval=0.1",
        *train,
    ]


class Drill:
    """The kills of one run."""

    def __init__(self, run: Path, out: Path, updates: int, kills: int, rng: random.Random) -> None:
        self.run, self.out, self.rng = run, out, rng
        self.goals = [
            None if rng.random() < EARLY else updates * number // (kills + 1)
            for number in range(1, kills + 1)
        ]
        self.moments: list[int] = []

    def newest(self) -> int:
        """Return the newest checkpoint."""
        names = [p.name for p in (self.out / "checkpoints").glob("[0-9]*")]
        return max(map(int, names), default=0)

    def wait(self, process: subprocess.Popen[bytes], goal: int | None) -> None:
        """Wait for the moment of a kill."""
        if goal is None:
            time.sleep(self.rng.uniform(0.5, 8.0))
            return
        while self.newest() < goal and process.poll() is None:
            time.sleep(0.002)
        time.sleep(self.rng.uniform(0.0, 0.1))

    def one(self) -> list[int]:
        """Kill the whole command, and begin it anew."""
        line = command(self.run, self.out, 1, 0)
        for goal in self.goals:
            process = subprocess.Popen(line, stderr=subprocess.DEVNULL)
            self.wait(process, goal)
            if process.poll() is not None:
                sys.exit(f"it ended by itself with {process.returncode}")
            process.send_signal(signal.SIGKILL)
            process.wait()
            self.moments.append(self.newest())
        subprocess.run(line, check=True, stderr=subprocess.DEVNULL)
        return self.moments

    def many(self, processes: int) -> list[int]:
        """Kill one worker at a time; torchrun does the rest."""
        line = command(self.run, self.out, processes, 2 * len(self.goals))
        with subprocess.Popen(line, stderr=subprocess.DEVNULL) as process:
            for goal in self.goals:
                while len(found := workers(process.pid)) < processes and process.poll() is None:
                    time.sleep(0.01)
                self.wait(process, goal)
                if process.poll() is not None:
                    sys.exit(f"it ended by itself with {process.returncode}")
                victim = self.rng.choice(found)
                os.kill(victim, signal.SIGKILL)
                self.moments.append(self.newest())
                while victim in (left := workers(process.pid)) or set(found) & set(left):
                    time.sleep(0.01)
            if process.wait():
                sys.exit(f"torchrun ended with {process.returncode}")
        return self.moments


def workers(parent: int) -> list[int]:
    """Return the processes that another one started and that run a training."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            status = (path / "stat").read_text().rpartition(")")[2].split()
            train = b"train" in (path / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if int(status[1]) == parent and status[0] != "Z" and train:
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
