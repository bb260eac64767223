"""Measure how fast a training of several processes answers a signal with a complete checkpoint.

    python benchmarks/stop_drill.py --signals 12 --launch command
    python benchmarks/stop_drill.py --signals 12 --launch torchrun --data fsdp

A tiny model is trained with a validation, whose predictions take most of the time, every 4 updates,
and a checkpoint every 2.  At a random moment the process that was started, which is torchrun or the
main process, gets SIGTERM or SIGHUP, in turn.  The same command with `--resume auto` then continues
the run.  For each signal the drill reports

saved     seconds until a checkpoint of all updates so far was complete
ended     seconds until all processes had ended
CPU       seconds of processor time of the slowest process in between
phase     what the processes did: update, or validation

At last the weights and the state of the optimizer are compared with those of an undisturbed run.
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
from dataclasses import dataclass
from pathlib import Path

from kill_drill import alive, same_parts, workers
from kill_drill_runs import write_run

PATIENCE = 300.0
"""Seconds without a checkpoint after which a run counts as hung."""
LIMIT = 10.0
"""Seconds in which a signal must be answered."""
SETTINGS = (
    "accumulate=4",
    "optimizer.groups=[]",
    "evaluate.every=4",
    'evaluate.metrics=["chrf"]',
    'predict={"type":"beam","beam":4}',
    'answers="target"',
    "checkpoint.every=2",
    "checkpoint.keep=1000",
    "checkpoint.average=0",
)
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Stop:
    """One signal and its answer."""

    name: str
    phase: str
    saved: float
    ended: float
    cpu: float
    code: int


class Drill:
    """An undisturbed run, and one that gets signals."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        """Write the run."""
        self.folder, self.options = folder, options
        self.run = write_run(folder, options.updates)
        self.rng = random.Random(options.seed)
        self.began = time.monotonic()

    def report(self, words: str) -> None:
        """Print a line with the elapsed time."""
        print(f"{time.monotonic() - self.began:7.1f} s  {words}", flush=True)

    def started(self, out: str) -> subprocess.Popen[bytes]:
        """Start or continue a run, always with the same command."""
        settings = [f"--set={text}" for text in SETTINGS]
        settings.append(f"--set=parallel.data={self.options.data}")
        if self.options.data == "fsdp":
            settings.append("--set=checkpoint.sharded=true")
        launch: list[str] = []
        if self.options.launch == "torchrun":
            launch = ["-m", "torch.distributed.run", "--standalone"]
            launch.append(f"--nproc-per-node={self.options.processes}")
        else:
            settings.append(f"--set=parallel.processes={self.options.processes}")
        words = ["-m", "weft", "train", str(self.run), "--out", str(self.folder / out)]
        with (self.folder / f"{out}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, *launch, *words, *settings, "--resume", "auto"],
                stdout=log,
                stderr=log,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )

    def checkpoints(self, out: str) -> list[Path]:
        """Return the complete checkpoints of a run, oldest first."""
        folders = (self.folder / out / "checkpoints").glob("[0-9]*")
        return sorted(path for path in folders if path.name.isdecimal())

    def stop(self, name: str) -> Stop | None:
        """Send one signal at a random moment; None if the run ended before."""
        first = len(self.checkpoints("stopped"))
        process, late = self.started("stopped"), time.monotonic() + PATIENCE
        while len(self.checkpoints("stopped")) == first and process.poll() is None:
            if time.monotonic() > late:
                process.kill()
                sys.exit(f"no checkpoint in {PATIENCE:.0f} s; see {self.folder}")
            time.sleep(0.02)
        time.sleep(self.rng.uniform(0.0, self.options.longest))
        if process.poll() is not None:
            return None
        team = [process.pid, *workers(process.pid)]
        before = {member: cpu_seconds(member) for member in team}
        sent, clock = time.time(), time.monotonic()
        process.send_signal(getattr(signal, name))
        cpu = 0.0
        while any(map(alive, team)) and time.monotonic() < clock + PATIENCE:
            cpu = max([cpu, *(cpu_seconds(m) - before[m] for m in team if alive(m))])
            process.poll()
            time.sleep(0.02)
        ended = time.monotonic() - clock
        newest = self.checkpoints("stopped")[-1]
        state = json.loads((newest / "state.json").read_text())
        return Stop(
            name,
            "validation" if state["validation_due"] else "update",
            max(0.0, newest.stat().st_mtime - sent),
            ended,
            cpu,
            process.wait(),
        )

    def complete(self, out: str) -> None:
        """Run to the end; exit if that fails."""
        if self.started(out).wait():
            sys.exit(f"the run failed; see {self.folder}/{out}.log")

    def whole(self) -> bool:
        """Run the drill; return whether all signals were answered in time without a loss."""
        stops: list[Stop] = []
        while len(stops) < self.options.signals:
            stop = self.stop(("SIGTERM", "SIGHUP")[len(stops) % 2])
            if stop is None:
                break
            stops.append(stop)
            self.report(
                f"{stop.name}, {stop.phase}: saved {stop.saved:.1f} s, ended {stop.ended:.1f} s,"
                f" CPU {stop.cpu:.1f} s, exit code {stop.code}, load {os.getloadavg()[0]:.0f}"
            )
        self.complete("stopped")
        self.complete("straight")
        names = [f"checkpoints/{self.options.updates:06d}/{kind}" for kind in PARTS]
        different = [
            name
            for name in names
            if not same_parts(self.folder / "straight" / name, self.folder / "stopped" / name)
        ]
        slowest = max((stop.saved for stop in stops), default=0.0)
        ends = max((stop.ended for stop in stops), default=0.0)
        self.report(
            f"{len(stops)} signals, {sum(s.phase == 'validation' for s in stops)} in validations:"
            f" saved within {slowest:.1f} s, ended within {ends:.1f} s;"
            + (f" different: {', '.join(different)}" if different else " the same bits")
        )
        return not different and slowest <= LIMIT


PARTS = ("weights", "optimizer")


def cpu_seconds(process: int) -> float:
    """Return the processor time of a process so far; 0 if it has ended."""
    try:
        status = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(status[11]) + int(status[12])) / TICKS


def main() -> None:
    """Run the drill, and exit with 1 if a signal was answered too late, or a bit was lost."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--signals", type=int, default=12, help="number of signals")
    parser.add_argument("--launch", choices=("torchrun", "command"), default="command")
    parser.add_argument("--data", choices=("ddp", "fsdp"), default="ddp", help="data parallelism")
    parser.add_argument("--processes", type=int, default=2, help="number of processes")
    parser.add_argument("--updates", type=int, default=60, help="updates of the run")
    parser.add_argument("--longest", type=float, default=3.0, help="most seconds before a signal")
    parser.add_argument("--seed", type=int, default=1, help="random seed of the moments")
    parser.add_argument("--folder", type=Path, help="working folder, which is kept")
    options = parser.parse_args()
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it, and a training inherits that
    with tempfile.TemporaryDirectory() as name:
        folder = (options.folder or Path(name)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        answered = Drill(folder, options).whole()
    sys.exit(not answered)


if __name__ == "__main__":
    main()
