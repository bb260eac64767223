"""Measure processor time, memory and disk of preparing a corpus as large as WMT's.

Generates parallel text whose sentence lengths are lognormal and whose words follow Zipf's law, a
tenth of it twice, runs `weft prepare` on it in its own process, and monitors that process, its
descendants (in /proc, Linux) and its folder.

    python benchmarks/prepare.py --pairs 500000 2000000 --processes 1 2 --compression plain gzip

prepares each number of pairs with each number of processes and each compression, and prints one
line of JSON for each; the files are removed.  Two million pairs take a few minutes on two cores and
2 GB of disk.  Processor time is that of all processes, so other work on the machine changes it
little.

    python benchmarks/prepare.py --pairs 500000 --stores folder moto

also uploads what was prepared to a folder, and to a local S3 server (the packages moto[server] and
s3fs), and fetches it from there into an empty cache; the time of the server is not counted.
"""

from __future__ import annotations

import argparse
import bz2
import contextlib
import gzip
import json
import lzma
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from itertools import product
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from backports import zstd

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
    "zstd": zstd.open,
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


def measure(words: Sequence[str], folder: Path, **environment: str) -> dict[str, Any]:
    """Return the measurements of `weft prepare`, and the report that it prints.

    Args:
        words: words of the command.
        folder: folder whose size is watched.
        environment: more variables.
    """
    before, began = os.times(), time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "weft", "prepare", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **environment},
    )
    watch = Watch(process, folder)
    text, _ = process.communicate()
    if process.returncode:
        sys.exit(f"weft prepare {' '.join(words)} failed")
    watch.join()
    seconds, after = time.perf_counter() - began, os.times()
    return {
        "CPU seconds": round(sum(after[2:4]) - sum(before[2:4]), 1),
        "of them in the main process": round(watch.seconds),
        "seconds": round(seconds),
        "most processes": watch.processes,
        "peak MB of all processes (PSS)": round(watch.memory / 1024),
        "peak MB of the main process (PSS)": round(watch.main / 1024),
        "peak MB on disk": round(watch.disk / 1e6),
        "report": json.loads(text),
    }


@contextlib.contextmanager
def served(store: str, folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the address of an empty store and the variables that it needs."""
    if store == "folder":
        yield str(folder / "store"), {}
        return
    code = "import sys; from moto.server import main; main(sys.argv[1:])"
    port = "5653"
    server = subprocess.Popen(
        [sys.executable, "-c", code, "-p", port],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        address = f"http://127.0.0.1:{port}"
        for _ in range(600):
            with contextlib.suppress(OSError):
                request = urllib.request.Request(f"{address}/corpora", method="PUT")
                urllib.request.urlopen(request).close()
                break
            time.sleep(0.1)
        account = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
        region = {"AWS_DEFAULT_REGION": "us-east-1", "AWS_ENDPOINT_URL": address}
        yield "s3://corpora/drill", account | region
    finally:
        server.kill()
        server.wait()


def measure_store(run: Path, out: Path, store: str) -> Iterator[dict[str, Any]]:
    """Yield the measurements of uploading prepared data to a store, and of fetching it."""
    with tempfile.TemporaryDirectory(dir=run.parent) as name, served(store, Path(name)) as at:
        (address, environment), cache = at, Path(name) / "cache"
        sent = measure([str(run), "--out", str(out), "--to", address], out, **environment)
        yield {"upload to": store, **sent}
        source = sent["report"]["prepared"].removeprefix(f"{run.parent}/")
        words = [str(run), "--out", f"{name}/far", "--set", f"data.prepared={source}"]
        yield {"fetch from": store, **measure(words, cache, **environment, WEFT_CACHE=str(cache))}


def show(sizes: dict[str, Any], measured: dict[str, Any]) -> None:
    """Print measurements, with the counts of the report."""
    report = measured.pop("report")["train"]
    counts = {key: report[key] for key in ("kept", "dropped")}
    print(json.dumps({**sizes, **measured, **counts}), flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Generate text, prepare it, and print the measurements."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--pairs", type=int, nargs="+", default=[2_000_000])
    options.add_argument("--processes", type=int, nargs="+", default=[2])
    options.add_argument("--compression", nargs="+", choices=OPENERS, default=["plain"])
    options.add_argument("--stores", nargs="+", choices=("folder", "moto"), default=[])
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
            sizes = {"pairs": pairs, "compression": compression, "text MB": round(text / 1e6)}
            for processes in settings.processes:
                with tempfile.TemporaryDirectory(dir=folder) as inner:
                    out = Path(inner)
                    words = [str(run), "--out", inner, "--processes", str(processes)]
                    measured = measure(words, out)
                    size = round(_bytes_in(out / "prepared") / 1e6)
                    show({**sizes, "processes": processes, "prepared MB": size}, measured)
                    if processes == settings.processes[-1]:
                        for store in settings.stores:
                            for measured in measure_store(run, out, store):
                                show(sizes, measured)


if __name__ == "__main__":
    main()
