"""Mutate many specs, patches and runs, and check each: only findings may result, within a second.

    python tests/fuzz/fuzz_files.py --files 100000 --processes 2 --seed 1

Every file is checked as `weft check` does, with warnings, and its certain fixes are applied.  The
files are drawn from the shipped specs, variants and runs and from the seeds of `tests/fuzz/seeds`.
A file that raises another exception than InputError, or takes longer than `--seconds` of CPU time
in each of three attempts, is written to `--out`, and the exit code is 1.  The same seed gives the
same files, whatever the number of processes.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import harness
import mutate
from weft.blocks.registry import registry
from weft.graphs.advice import advise
from weft.graphs.checker.check import analyse
from weft.runtime.spec.fixing import fixed
from weft.runtime.train.plan import plan_value
from weft.specs.findings import Finding, InputError, SpecError
from weft.specs.form import kind_of
from weft.specs.json_tree import Source
from weft.specs.load import load_as
from weft.specs.reader import SHIPPED, read_json

LARGEST = 40_000
"""Maximum number of characters of a seed, so that most files are checked quickly."""


def main() -> int:
    """Check the files, and return the exit code."""
    return harness.run(
        __doc__,
        check=checked,
        write=written,
        counted="codes",
        files=100_000,
        out="outputs/fuzz/files",
    )


def written(out: Path, _: int, failure: tuple[str, str, str]) -> None:
    """Write a wrong file, and why it is wrong beside it."""
    name, text, why = failure
    (out / f"{name}.json").write_text(text, encoding="utf-8")
    (out / f"{name}.txt").write_text(why, encoding="utf-8")


def checked(task: tuple[int, int, float]) -> tuple[Counter[str], float, list[tuple[str, str, str]]]:
    """Check one chunk of files.

    Args:
        task: the seed, the number of the chunk, and the permitted CPU time of a file.

    Returns:
        How often each code was found, the seconds of the slowest file, and the name, the text and
        the reason of each file that is wrong.
    """
    seed, chunk, permitted = task
    rng = random.Random(f"{seed} {chunk}")
    seeds = _seeds()
    codes, slowest, failures = Counter[str](), 0.0, list[tuple[str, str, str]]()
    with tempfile.TemporaryDirectory() as folder:
        for index in range(harness.CHUNK):
            text = _mutated(rng.choice(seeds), rng)
            source = Source(str(Path(folder) / "file.json"), text)
            name = f"{seed}-{chunk}-{index}"
            try:
                seconds = permitted
                for _ in range(3):  # a busy machine rarely slows all three
                    start = time.process_time()
                    found = findings_in(source)
                    seconds = min(seconds, time.process_time() - start)
                    if seconds < permitted:
                        break
                else:
                    failures.append((name, text, f"took {seconds:.2f} s"))
                slowest = max(slowest, seconds)
                codes.update({each.code for each in found})
                for each in found:
                    json.dumps(each.as_json())
                    each.render()
                if any(each.fix and each.fix.certain for each in found):
                    fixed(text, lambda new: findings_in(Source(source, new)), source)  # noqa: B023
            except Exception:  # noqa: BLE001 - any other exception is what this looks for
                failures.append((name, text, traceback.format_exc()))
    return codes, slowest, failures


def findings_in(source: Source) -> list[Finding]:
    """Return everything that `weft check` finds in a text."""
    try:
        value = read_json(source.text, source)
        if kind_of(value) == "run":
            return list(plan_value(value, source).findings)
        loaded = load_as(value, source)
        graph, found = analyse(
            loaded.recovered, registry(), loaded.overrides, source=source, lost=loaded.lost
        )
        if graph is not None and not loaded.mistakes:
            found = advise(graph)
        return [*loaded.mistakes, *loaded.place_all(found)]
    except SpecError as error:
        return list(error.findings)
    except InputError as error:
        return [Finding(code="input", at="", problem=error.problem)]


def _seeds() -> list[str]:
    """Return the texts of the files that are mutated."""
    paths = [*mutate.seeds(), *sorted((SHIPPED / "runs").glob("*.json"))]
    texts = (path.read_text(encoding="utf-8") for path in paths)
    return [text for text in texts if len(text) <= LARGEST]


def _mutated(text: str, rng: random.Random) -> str:
    """Return a mutation of a file: mostly of its value, sometimes of its text."""
    if rng.random() < 0.1:
        return mutate.mutated_text(text, rng, rng.randint(1, 3))
    value: Any = mutate.mutated(json.loads(text), rng, rng.randint(1, 4))
    return json.dumps(value, indent=rng.choice([None, 1]))


if __name__ == "__main__":
    sys.exit(main())
