"""Coverage-guided fuzzing: find a file whose opening as a spec crashes or takes too long.

    python tests/fuzz/fuzz_load.py [FOLDER...] [libFuzzer options]

`make fuzz` calls it.  Files that crash are written to the folder of `-artifact_prefix`;
after a bug is fixed, add a file that triggered it to `tests/fuzz/seeds`.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from pathlib import Path

try:
    import atheris
except ImportError:
    sys.exit(
        "fuzzing needs atheris, which has no wheel for every Python;"
        " with Python 3.11 to 3.13, run: pip install -e '.[fuzz]'"
    )

with atheris.instrument_imports(include=["weft.specs", "weft.graphs"]):
    import mutate

MOST_SECONDS = 3.0
"""CPU time limit for one file; instrumented code takes about three times as long."""
FOLDER = Path(tempfile.mkdtemp(prefix="weft-fuzz-"))


def one(data: bytes) -> None:
    """Open a file with the given bytes."""
    path = FOLDER / "spec.json"
    path.write_bytes(data)
    start = time.process_time()
    mutate.opened(path)
    if time.process_time() - start > MOST_SECONDS:
        msg = f"opening took {time.process_time() - start:.1f} s"
        raise TimeoutError(msg)


def change(data: bytes, most: int, seed: int) -> bytes:
    """Mutate a file: mostly as JSON, sometimes as bytes."""
    rng = random.Random(seed)
    try:
        value = json.loads(data) if rng.random() < 0.9 else None
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        return bytes(atheris.Mutate(data, most))
    made = json.dumps(mutate.mutated(value, rng, rng.randint(1, 3)), separators=(",", ":"))
    return made.encode() if len(made) <= most else data[:most]


def main() -> None:
    """Fuzz until the time limit or the first crash."""
    starts = Path(tempfile.mkdtemp(prefix="weft-seeds-"))
    for path in mutate.seeds():
        (starts / path.name).write_bytes(path.read_bytes())
    arguments = [sys.argv[0], *sys.argv[1:], str(starts)]
    atheris.Setup(arguments, one, custom_mutator=change)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
