"""Measure processor time, memory and disk of preparing a corpus as large as WMT's.

Generates parallel text whose sentence lengths are lognormal and whose words follow Zipf's law, a
tenth of it twice, runs `weft prepare` on it in its own process, and monitors that process, its
descendants (in /proc, Linux) and its folder.

    python benchmarks/prepare.py --pairs 500000 2000000 --processes 1 2 --compression plain gzip

prepares each number of pairs with each number of processes and each compression, and prints one
line of JSON for each; the files are removed.  Two million pairs take a few minutes on two cores and
2 GB of disk.  Processor time is that of all processes, so other work on the machine changes it
little.
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import json
import lzma
import os
import subprocess
import sys
import tempfile
import threading
import time
from itertools import product
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

WORDS = 200_000
"""Vocabulary of each side, in words."""
BLOCK = 50_000
"""Pairs generated at a time."""
REPEATED = 10
"""Every so many lines, one is a repetition of an earlier block's line."""
EVERY = 0.5
"""Seconds between measurements of memory and disk."""
OPENERS: dict[str, Callable[..., IO[str]]] = {
    "plain": open,
    "gzip": gzip.open,
    "bzip2": bz2.open,
    "xz": lzma.open,
}
"""What opens a text file to write; weft recognizes the compression by the content."""


def words(letters: str, vowels: str) -> list[str]:
    """Return generated words, short words first, because frequent words are short."""
    syllables = [a + b for a in letters for b in vowels]
    base, generated = len(syllables), []
    for number in range(WORDS):
        remainder, word = number, ""
        while True:
            word += syllables[remainder % base]
            remainder = remainder // base - 1
            if remainder < 0:
                break
        generated.append(word)
    return generated


def write_text(folder: Path, pairs: int, open_text: Callable[..., IO[str]]) -> None:
    """Write training and validation text of both sides."""
    random = np.random.default_rng(1)
    sides = {"en": words("bcdfghjklmnp", "aeiou"), "de": words("rstvwzhklmng", "aeiouäöü")}
    for split, count in (("train", pairs), ("valid", 2000)):
        files = {side: open_text(folder / f"{split}.{side}", "wt") for side in sides}
        before: dict[str, list[str]] = {side: [] for side in sides}
        for start in range(0, count, BLOCK):
            size = min(BLOCK, count - start)
            lengths = np.clip(random.lognormal(3.0, 0.6, size), 1, 180)
            for side, vocabulary in sides.items():
                counts = np.maximum(1, lengths * random.lognormal(0.0, 0.15, size)).astype(int)
                # Zipf's law: the logarithm of a rank is uniform.
                ranks = (WORDS ** random.random(int(counts.sum()))).astype(np.int64) - 1
                text, begin, lines = [vocabulary[rank] for rank in ranks.tolist()], 0, []
                for length in counts.tolist():
                    lines.append(" ".join(text[begin : begin + length]))
                    begin += length
                repeated = before[side][:size:REPEATED]
                lines[: len(repeated) * REPEATED : REPEATED] = repeated
                files[side].write("\n".join(lines) + "\n")
                before[side] = before[side] or lines
        for file in files.values():
            file.close()


class Watch:
    """Monitors the memory of a process and its descendants, and a folder, until it ends."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        """Start to monitor."""
        self.process, self.folder = process, folder
        self.memory = self.main = self.processes = self.disk = 0
        """Most kB of memory (PSS) of all processes and of the first one, most processes, and most
        bytes in the folder."""
        self.seconds = 0.0
        """Processor time of the first process, without its children."""
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        while self.process.poll() is None:
            pids = [*_family(self.process.pid)]
            self.memory = max(self.memory, sum(map(_memory, pids)))
            self.main = max(self.main, _memory(self.process.pid))
            self.seconds = _seconds(self.process.pid) or self.seconds
            self.processes = max(self.processes, len(pids))
            self.disk = max(self.disk, _bytes_in(self.folder))
            time.sleep(EVERY)

    def join(self) -> None:
        """Wait for the process to end."""
        self._thread.join()


def _family(pid: int) -> Iterator[int]:
    """Yield a process and its descendants."""
    yield pid
    try:
        children = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return
    for child in " ".join(children).split():
        yield from _family(int(child))


def _memory(pid: int) -> int:
    """Return the memory of a process in kB, of which shared pages count in part (PSS)."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def _seconds(pid: int) -> float:
    """Return the processor time of a process without its children; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _bytes_in(folder: Path) -> int:
    """Return the bytes of all files below a folder, some of which may disappear meanwhile."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(path) / name).stat().st_blocks * 512
            except OSError:
                continue
    return total


def run_of(folder: Path, vocabulary: int) -> dict[str, Any]:
    """Return a run that prepares the text in a folder."""
    return {
        "format": 1,
        "name": "drill",
        "objective": "translation",
        "params": {"model": {"spec": "transformer-base"}},
        "data": {
            "root": str(folder),
            "columns": {
                side: {"type": "text", "tokenizer": "tokenizer"} for side in ("source", "target")
            },
            "train": {"lines": {"source": ["train.en"], "target": ["train.de"]}},
            "valid": {"lines": {"source": ["valid.en"], "target": ["valid.de"]}},
            "filter": {"max_length": 250, "duplicates": "drop"},
        },
        "tokenizers": {"tokenizer": {"type": "bpe", "vocab_size": vocabulary}},
    }


def measure(run: Path, processes: int) -> dict[str, object]:
    """Return the measurements of one preparation."""
    with tempfile.TemporaryDirectory(dir=run.parent) as name:
        out = Path(name)
        command = ["prepare", str(run), "--out", str(out), "--processes", str(processes)]
        before, began = os.times(), time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "weft", *command], stdout=subprocess.DEVNULL
        )
        watch = Watch(process, out)
        if process.wait():
            sys.exit(f"weft {' '.join(command)} failed")
        seconds, after = time.perf_counter() - began, os.times()
        watch.join()
        prepared = out / "prepared"
        report = json.loads((prepared / "prepared.json").read_text())["report"]["train"]
        cpu = sum(after[2:4]) - sum(before[2:4])
        return {
            "CPU seconds": round(cpu),
            "of them in the main process": round(watch.seconds),
            "seconds": round(seconds),
            "most processes": watch.processes,
            "peak MB of all processes (PSS)": round(watch.memory / 1024),
            "peak MB of the main process (PSS)": round(watch.main / 1024),
            "peak MB on disk": round(watch.disk / 1e6),
            "prepared MB": round(_bytes_in(prepared) / 1e6),
            "kept": report["kept"],
            "dropped": report["dropped"],
        }


def main(arguments: Sequence[str] | None = None) -> None:
    """Generate text, prepare it, and print the measurements."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--pairs", type=int, nargs="+", default=[2_000_000])
    options.add_argument("--processes", type=int, nargs="+", default=[2])
    options.add_argument("--compression", nargs="+", choices=OPENERS, default=["plain"])
    options.add_argument("--vocabulary", type=int, default=37_000)
    options.add_argument("--folder", help="working folder (default: a temporary folder)")
    settings = options.parse_args(arguments)
    for pairs, compression in product(settings.pairs, settings.compression):
        with tempfile.TemporaryDirectory(dir=settings.folder) as name:
            folder = Path(name)
            write_text(folder, pairs, OPENERS[compression])
            run = folder / "drill.json"
            run.write_text(json.dumps(run_of(folder, settings.vocabulary)))
            text = sum(path.stat().st_size for path in folder.glob("train.*"))
            for processes in settings.processes:
                sizes = {"pairs": pairs, "compression": compression, "processes": processes}
                measured = measure(run, processes)
                print(json.dumps({**sizes, "text MB": round(text / 1e6), **measured}), flush=True)


if __name__ == "__main__":
    main()
