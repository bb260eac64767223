"""Test that a run continues with the same bits after damage to a file of its newest checkpoint.

    python benchmarks/damage_drill.py
    python benchmarks/damage_drill.py --only state.json spec.json

A tiny model is trained for 6 updates with a checkpoint every 2.  Then, for each file of the newest
checkpoint and each of 16 kinds of damage, a copy of the run is damaged and resumed.  The damaged
checkpoint must be passed over with a warning, or be no damage, and the final weights must have the
same bits as those of an undisturbed run.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import weft
from kill_drill import same
from kill_drill_runs import write_run
from weft import InputError

Damage = Callable[[Path, Path], object]
CHANCE = random.Random(9)


def changed(path: Path, change: Callable[[bytes], bytes]) -> None:
    """Replace the content of a file."""
    path.write_bytes(change(path.read_bytes()))


def flipped(data: bytes, at: float) -> bytes:
    """Return data with one bit changed."""
    place = min(len(data) - 1, int(at * len(data)))
    return data[:place] + bytes([data[place] ^ (1 << CHANCE.randrange(8))]) + data[place + 1 :]


def half_zeroed(data: bytes) -> bytes:
    """Return data whose second half is zeros, as a disk may after a power failure."""
    return data[: len(data) // 2].ljust(len(data), b"\0")


def replaced(path: Path, make: Callable[[Path], object]) -> None:
    """Put something else in the place of a file."""
    path.unlink()
    make(path)


DAMAGES: dict[str, Damage] = {
    "a bit at the beginning": lambda p, _: changed(p, lambda d: flipped(d, 0)),
    "a bit in the middle": lambda p, _: changed(p, lambda d: flipped(d, 0.5)),
    "a bit at the end": lambda p, _: changed(p, lambda d: flipped(d, 1)),
    "the second half cut off": lambda p, _: changed(p, lambda d: d[: len(d) // 2]),
    "the last byte cut off": lambda p, _: changed(p, lambda d: d[:-1]),
    "empty": lambda p, _: changed(p, lambda _: b""),
    "zeros in the second half": lambda p, _: changed(p, half_zeroed),
    "zeros": lambda p, _: changed(p, lambda d: bytes(len(d))),
    "random bytes": lambda p, _: changed(p, lambda d: CHANCE.randbytes(len(d))),
    "a byte more": lambda p, _: changed(p, lambda d: d + b"x"),
    "two pages exchanged": lambda p, _: changed(p, lambda d: d[len(d) // 2 :] + d[: len(d) // 2]),
    "gone": lambda p, _: p.unlink(),
    "a folder": lambda p, _: replaced(p, Path.mkdir),
    "a pipe": lambda p, _: replaced(p, os.mkfifo),
    "a link to a file elsewhere": lambda p, other: replaced(p, lambda q: q.symlink_to(other)),
    "that of the checkpoint before": lambda p, _: (
        shutil.copyfile(p.parents[1] / "000004" / p.name, p)
        if (p.parents[1] / "000004" / p.name).exists()
        else p.unlink()
    ),
}


class Log:
    """The lines that a training logs."""

    def __init__(self) -> None:
        """Start without lines."""
        self.lines: list[str] = []

    def log(self, text: str) -> None:
        """Keep a line."""
        self.lines.append(text)

    def progress(self, progress: object) -> None:
        """Ignore the progress."""

    def validated(self, update: int, values: object) -> None:
        """Ignore a validation."""


def resumed(run: Path, folder: Path, expected: Path) -> str:
    """Resume a damaged run; return what happened."""
    log = Log()
    try:
        weft.train(run, out=folder, resume=True, listener=log)
    except InputError as error:
        return f"ERROR {error.problem.splitlines()[0]}"
    if not same(folder / "checkpoints/000006/weights.safetensors", expected):
        return "OTHER BITS"
    passed = any("trying the checkpoint before it" in line for line in log.lines)
    return "passed over" if passed else "no damage"


def main() -> None:
    """Try every damage of every file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", help="files to damage; default: all")
    options = parser.parse_args()
    outcomes, bad = Counter[str](), list[str]()
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        (base / "other").write_text("{}")
        run = write_run(base, 6)
        written = json.loads(run.read_text())
        written["checkpoint"] = {"every": 2, "keep": 3, "average": 2}
        run.write_text(json.dumps(written))
        weft.train(run, out=base / "whole")
        expected = base / "whole/checkpoints/000006/weights.safetensors"
        begun = base / "whole"
        files = sorted(path.name for path in expected.parent.iterdir())
        for file in options.only or files:
            for kind, damage in DAMAGES.items():
                folder = Path(shutil.copytree(begun, base / "trial", symlinks=True))
                damage(folder / "checkpoints/000006" / file, base / "other")
                outcome = resumed(run, folder, expected)
                outcomes[outcome.partition(" ")[0] if outcome.isupper() else outcome] += 1
                print(f"{file:24} {kind:32} {outcome}", flush=True)
                if outcome not in ("passed over", "no damage"):
                    bad.append(f"{file}, {kind}: {outcome}")
                shutil.rmtree(folder)
    print(f"{sum(outcomes.values())} trials: {dict(outcomes)}")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
