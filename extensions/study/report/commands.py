"""Commands with which a study, and each of its runs, can be repeated."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from .record import Record


def commands(record: Record) -> list[str]:
    """Return the commands of a study: all of it, and each training alone."""
    lines = [study_command("run", record["source"], record["overrides"], record["folder"])]
    jobs = set[str]()
    for row in record["rows"]:
        for seed, seed_run in row["seeds"].items():
            if seed_run["job"] not in jobs:
                jobs.add(seed_run["job"])
                run = shlex.quote(f"{record['folder']}/jobs/{seed_run['job']}/run.json")
                command = f"weft train {run} --out {shlex.quote('outputs/' + seed_run['job'])}"
                lines.append(f"{command}  # {' '.join(row['name'].split())}, seed {seed}")
    return lines


def study_command(action: str, source: str, overrides: Iterable[str], folder: str) -> str:
    """Return the command of a study, such as `run`, with the overrides as `PATH=JSON`."""
    settings = "".join(f" --set {shlex.quote(override)}" for override in overrides)
    return f"weft study {action} {shlex.quote(source)}{settings} --out {shlex.quote(folder)}"
