"""Test that a study that is killed repeatedly has the same report as an undisturbed one.

    python benchmarks/study_kill_drill.py --kills 50
    python benchmarks/study_kill_drill.py --kills 50 --folder DIR    continues an interrupted drill

A study of three rows and two seeds, whose rates are tuned first, trains on a small generated
corpus, two runs at a time.  At random times, SIGKILL hits the process of the study, one of the
processes that train, or all of them at once as when the machine stops; then the same command
continues.  At the end, all figures of both reports are compared except times and folders, and the
weights bit by bit.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from kill_drill import same
from kill_drill_runs import write_run

UPDATES = 200
SHORTEST, LONGEST = 1.0, 40.0
"""Seconds between the start of the study and a kill."""
VICTIMS = ("study", "worker", "all")


def main() -> None:
    """Run the study once undisturbed and once with kills, and compare the results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=50, help="number of kills")
    parser.add_argument("--longest", type=float, default=LONGEST, help="seconds before a kill")
    parser.add_argument("--seed", type=int, default=1, help="random seed of the kills")
    parser.add_argument("--folder", type=Path, help="working folder, which is kept")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = (options.folder or Path(name)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        study = write_study(folder)
        began = time.monotonic()
        finish(study, folder / "straight")
        print(f"undisturbed: {time.monotonic() - began:.0f} s", flush=True)
        kill(study, folder, options.kills, options.longest, options.seed)
        finish(study, folder / "killed")
        different = differences(folder / "straight", folder / "killed")
    print(f"different: {different}" if different else "equal: reports, and weights to the bit")
    sys.exit(bool(different))


def write_study(folder: Path, updates: int = UPDATES) -> Path:
    """Write a corpus and the study; return its file.

    Args:
        folder: where they are written.
        updates: updates of each run.
    """
    run = json.loads(write_run(folder, updates).read_text())
    run["data"]["test"] = {"test": run["data"]["valid"]}
    run |= {
        "accumulate": 1,
        "predict": {"type": "beam", "beam": 1, "max_extra": 4},
        "answers": "target",
        "evaluate": {"every": 20, "best": "nll", "samples": 0},
        "checkpoint": {"every": 5, "keep": 3, "average": 3},
        "trackers": [],
    }
    study = {
        "format": 1,
        "name": "drill",
        "run": run,
        "rows": {"one-head": {"params": {"heads": 1}}, "wide": {"params": {"d_ff": 64}}},
        "seeds": [1, 2],
        "tune": {
            "values": {"schedule.peak": [0.001, 0.01]},
            "metric": "nll",
            "updates": updates // 2,
        },
        "measure": {"metrics": ["chrf", "bleu"]},
    }
    path = folder / "study.json"
    path.write_text(json.dumps(study))
    return path


def started(study: Path, out: Path) -> subprocess.Popen[bytes]:
    """Start or continue the study."""
    command = [sys.executable, "-m", "weft", "study", "run", str(study), "--out", str(out)]
    with (study.parent / "log").open("ab") as log:
        return subprocess.Popen(
            [*command, "--processes", "2", "--speed", "5"], stdout=log, stderr=log
        )


def finish(study: Path, out: Path) -> None:
    """Run the study to its end; exit if it fails."""
    if started(study, out).wait():
        sys.exit(f"the study in {out} failed; see {study.parent / 'log'}")


def kill(study: Path, folder: Path, kills: int, longest: float, seed: int) -> None:
    """Start the study and kill it, again and again."""
    log = folder / "kills.jsonl"
    done = [json.loads(line) for line in log.read_text().splitlines()] if log.is_file() else []
    while len(done) < kills:
        rng = random.Random(f"{seed} {len(done)}")
        victim, pause = rng.choice(VICTIMS), rng.uniform(SHORTEST, longest)
        process, since = started(study, folder / "killed"), time.monotonic()
        while time.monotonic() - since < pause and process.poll() is None:
            time.sleep(0.02)
        if process.poll() is not None:  # finished before the kill
            reset(folder / "killed", rng)
            continue
        workers = children(process.pid)
        if victim == "worker" and workers:
            os.kill(rng.choice(workers), signal.SIGKILL)
            process.send_signal(signal.SIGINT)
        else:
            victim = "study" if victim == "worker" else victim
            process.kill()
            for worker in workers if victim == "all" else ():
                os.kill(worker, signal.SIGKILL)
        process.wait()
        done.append({"victim": victim, "seconds": round(pause, 1), "workers": len(workers)})
        with log.open("a") as file:
            file.write(json.dumps(done[-1]) + "\n")
        print(f"kill {len(done)}/{kills}: {victim} after {pause:.1f} s", flush=True)
    print(f"killed {dict(Counter(one['victim'] for one in done))}", flush=True)


def reset(out: Path, rng: random.Random) -> None:
    """Remove what a random job has made, so that there is something to kill."""
    job = rng.choice(sorted((out / "jobs").iterdir()))
    for name in ("train", "measured"):
        shutil.rmtree(job / name, ignore_errors=True)
    (job / "trained.json").unlink(missing_ok=True)


def children(parent: int) -> list[int]:
    """Return the processes that a process has started."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            status = (path / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(status[1]) == parent and status[0] != "Z":
            found.append(int(path.name))
    return found


def differences(straight: Path, other: Path) -> list[str]:
    """Return what differs between the folders of two studies."""
    records = [
        figures(json.loads((folder / "report/drill.json").read_text()))
        for folder in (straight, other)
    ]
    found = [key for key in records[0] if records[0][key] != records[1][key]]
    for job in sorted((straight / "jobs").iterdir()):
        last = max(path.name for path in (job / "train" / "checkpoints").iterdir())
        for name in ("averaged", f"checkpoints/{last}"):
            path = f"jobs/{job.name}/train/{name}/weights.safetensors"
            if not same(straight / path, other / path):
                found.append(path)
    return found


def figures(value: Any) -> Any:
    """Return a record without times and folders."""
    if isinstance(value, dict):
        return {k: figures(v) for k, v in value.items() if k not in ("seconds", "folder")}
    return [figures(one) for one in value] if isinstance(value, list) else value


if __name__ == "__main__":
    main()
