"""Measure what planning the batches of an epoch takes in each process, by the number of rows.

Writes the offsets of a corpus of two text columns with lognormal lengths (the files of ids are
sparse, since no plan reads them), and starts processes as ranks of one machine.  Each checks all
lengths as a training does, plans the first chunk of an epoch, goes through its batches, and plans
the second chunk.  Then the memory of all of them is read from /proc (Linux) at the same time:

    python benchmarks/planning.py --rows 5000000 20000000 --ranks 1 8

prints one line of JSON for each.  `anonymous` is the memory that belongs to a process alone, at its
peak; `PSS` adds its share of mapped files, whose pages the system takes back when it needs them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

STRIDE = 1 << 20
"""Rows written at a time."""


def write_corpus(folder: Path, rows: int) -> None:
    """Write a corpus whose rows have lengths and no content."""
    folder.mkdir()
    random, tokens = np.random.default_rng(1), {}
    for name in ("source", "target"):
        end = 0
        with (folder / f"{name}.offsets").open("wb") as file:
            file.write(np.zeros(1, "<i8").tobytes())
            for start in range(0, rows, STRIDE):
                size = min(STRIDE, rows - start)
                lengths = np.clip(random.lognormal(3.2, 0.6, size), 1, 250).astype(np.int64)
                file.write((end + np.cumsum(lengths)).astype("<i8").tobytes())
                end += int(lengths.sum())
        with (folder / f"{name}.bin").open("wb") as file:
            file.truncate(2 * end)
        tokens[name] = end
    header = {
        "format": 1,
        "pairs": rows,
        "dtype": "<u2",
        "vocab_size": 37_000,
        "tokens": tokens,
        "tokenizers": {},
        "report": {},
    }
    (folder / "header.json").write_text(json.dumps(header))


def memory_of(pid: int | str) -> dict[str, int]:
    """Return the memory of a process by kind, in kB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return {line.split(":")[0]: int(line.split()[1]) for line in lines}


class Peak(threading.Thread):
    """Watches the anonymous memory of this process."""

    def __init__(self) -> None:
        """Begin."""
        super().__init__(daemon=True)
        self.kilobytes = 0
        self.start()

    def run(self) -> None:
        """Look at it again and again."""
        while True:
            self.kilobytes = max(self.kilobytes, memory_of("self")["Anonymous"])
            time.sleep(0.02)


def rank(folder: str, tokens: int) -> None:
    """Plan in this process; print the measurements, and wait for a line before the end."""
    from weft.runtime.data.plans.planning import stream_plans
    from weft.runtime.data.settings import BatchSettings
    from weft.runtime.data.shards.corpus import Corpus

    before, peak, began = memory_of("self")["Anonymous"], Peak(), time.process_time()
    corpus = Corpus.open(folder)
    corpus.summary.refuse_unfit(tokens)
    checked = time.process_time()
    stream = stream_plans(corpus, BatchSettings(tokens=tokens), 1)
    first = next(stream)
    planned = time.process_time()
    batches, rows = 1, len(first.rows)
    for batch in stream:
        if batch.at[:2] != first.at[:2]:
            break
        batches, rows = batches + 1, rows + len(batch.rows)
    measured = {
        "CPU s to check all lengths": round(checked - began, 2),
        "CPU s to the first batch": round(planned - checked, 2),
        "rows of a chunk": rows,
        "batches of a chunk": batches,
        "anonymous MB": round((peak.kilobytes - before) / 1024),
    }
    print(json.dumps(measured), flush=True)
    sys.stdin.readline()


def measure(folder: Path, ranks: int, tokens: int) -> dict[str, object]:
    """Return the measurements of some processes at the same time, of the one with the most."""
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, "--rank", str(folder), "--tokens", str(tokens)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(ranks)
    ]
    measured = [json.loads(process.stdout.readline()) for process in processes]  # type: ignore[union-attr]
    memory = [memory_of(process.pid) for process in processes]
    for process in processes:
        process.communicate("\n")
    most = max(measured, key=lambda values: values["anonymous MB"])
    return {
        **most,
        "PSS MB of a process": round(max(kinds["Pss"] for kinds in memory) / 1024),
        "PSS MB of all": round(sum(kinds["Pss"] for kinds in memory) / 1024),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Write corpora, plan them, and print the measurements."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rows", type=int, nargs="+", default=[20_000_000])
    options.add_argument("--ranks", type=int, nargs="+", default=[1])
    options.add_argument("--tokens", type=int, default=25_000, help="tokens of a batch")
    options.add_argument("--folder", help="working folder (default: a temporary folder)")
    options.add_argument("--rank", help=argparse.SUPPRESS)
    settings = options.parse_args(arguments)
    if settings.rank:
        rank(settings.rank, settings.tokens)
        return
    for rows in settings.rows:
        with tempfile.TemporaryDirectory(dir=settings.folder) as name:
            write_corpus(Path(name) / "corpus", rows)
            for ranks in settings.ranks:
                measured = measure(Path(name) / "corpus", ranks, settings.tokens)
                print(json.dumps({"rows": rows, "ranks": ranks, **measured}), flush=True)


if __name__ == "__main__":
    main()
