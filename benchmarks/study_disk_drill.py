"""Test that a study whose disk becomes full has the same report as an undisturbed one.

    python benchmarks/study_disk_drill.py --times 20
    python benchmarks/study_disk_drill.py --times 20 --folder DIR    keeps the folders and the log

A study of six short runs (three rows, two seeds) trains on a small generated corpus, two runs at a
time, on a disk of its own (tmpfs).  At random times, another file takes all the space that is left,
or all but some pages.  The study must then end by itself with exit code 1 and a message that says
so; every checkpoint and every record must be complete.  The file is removed, and the same command
continues.  At the end, all figures of both reports are compared except times and folders, and the
weights bit by bit.

It needs Linux, and no root: it mounts the disk in a user namespace.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from study_kill_drill import differences, finish, reset, started, write_study
from weft.runtime.checkpoint.checkpoint import open_checkpoint
from weft.runtime.train.retention import checkpoints
from weft.specs.regular_files import DamagedError

UPDATES = 40
JOBS = 6
SPACE = "192m"
"""Size of the disk."""
PAGE = 4096
"""Bytes of a page, in which tmpfs counts."""
SPARED = (0, 0, 1, 4, 40)
"""Pages that may stay free."""
LONGEST = 25.0
"""Seconds between the start of the study and the full disk."""
MESSAGE = "free disk space"
"""What the output of a study says that a full disk has stopped."""


def main() -> None:
    """Run the study once undisturbed and once on a disk that becomes full; compare the results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--times", type=int, default=20, help="how often the disk becomes full")
    parser.add_argument("--longest", type=float, default=LONGEST, help="seconds before that")
    parser.add_argument("--seed", type=int, default=1, help="random seed of the times")
    parser.add_argument("--folder", type=Path, help="working folder, which is kept")
    options = parser.parse_args()
    if os.geteuid() != 0:
        # The namespace makes this process root over its own mounts only.
        os.execvp("unshare", ["unshare", "-rm", sys.executable, *sys.argv])
    with tempfile.TemporaryDirectory() as name:
        folder = (options.folder or Path(name)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        study, disk = write_study(folder, UPDATES), folder / "disk"
        finish(study, folder / "straight")
        disk.mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SPACE}", "weft", disk], check=True)
        try:
            problems = fill(study, disk, options.times, options.longest, options.seed)
            finish(study, disk / "study")
            different = differences(folder / "straight", disk / "study")
        finally:
            subprocess.run(["umount", disk], check=True)
    print(f"different: {different}" if different else "equal: reports, and weights to the bit")
    sys.exit(bool(different or problems))


def fill(study: Path, disk: Path, times: int, longest: float, seed: int) -> int:
    """Start the study and fill its disk, again and again; return the number of problems."""
    out, log, done, wrong = disk / "study", study.parent / "log", 0, 0
    while done < times:
        rng = random.Random(f"{seed} {done}")
        pause, spared = rng.uniform(0.0, longest), rng.choice(SPARED)
        before = log.stat().st_size
        process, since = started(study, out), time.monotonic()
        while time.monotonic() - since < pause and process.poll() is None:
            time.sleep(0.02)
        if process.poll() is not None:  # finished before the disk was full
            reset(out, rng)
            continue
        take(disk / "other", spared)
        code = process.wait()
        words = log.read_bytes()[before:].decode()
        problems = unsound(out)
        if code == 0:  # all that was left had space
            problems += [] if spared else ["exit code 0 on a full disk"]
        elif code != 1 or "Traceback" in words or MESSAGE not in words:
            problems.append(f"exit code {code}, or a wrong message")
        # Whatever a job that fails cannot write, the others are tried.
        begun = words.count(": done\n") + words.count(": failed, ") + done_before(words)
        if " jobs, " in words and begun != JOBS:
            problems.append(f"{begun} of {JOBS} jobs were tried")
        (disk / "other").unlink()
        done, wrong = done + 1, wrong + len(problems)
        free = f"but {spared} pages " * bool(spared)
        print(f"{done}/{times}: full {free}after {pause:.1f} s, exit code {code}", flush=True)
        for problem in problems:
            print(f"PROBLEM: {problem}\n{words[-1200:]}", flush=True)
    return wrong


def done_before(words: str) -> int:
    """Return the number of jobs that were done when a study was started, from its output."""
    found = re.search(r"(\d+) of them done before", words)
    return int(found[1]) if found else 0


def take(path: Path, spared: int) -> None:
    """Write a file that takes all the space of its disk but some pages."""
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, PAGE):
            with suppress(OSError):
                while True:
                    file.write(bytes(size))
        file.truncate(max(0, file.tell() - spared * PAGE))


def unsound(out: Path) -> list[str]:
    """Return the checkpoints and the records of a study that are not complete, and what is left."""
    found = []
    for path in out.rglob("*.json"):
        try:
            json.loads(path.read_text())
        except FileNotFoundError:
            continue
        except ValueError as error:
            found.append(f"{path.relative_to(out)}: {error}")
    for job in out.glob("jobs/*/train"):
        for path in [*checkpoints(job), job / "best", job / "averaged"]:
            try:
                if path.is_dir():
                    open_checkpoint(path)
            except DamagedError as error:
                found.append(str(error))
    found += [f"left behind: {path}" for path in out.rglob("*.tmp")]
    return found


if __name__ == "__main__":
    main()
