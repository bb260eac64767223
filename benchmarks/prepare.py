"""Measure speed, memory and size of preparing a corpus as large as WMT's.

Generates parallel text whose sentence lengths are lognormal and whose words follow Zipf's law,
runs `weft prepare` on it in its own process, and monitors that process and its descendants in
/proc (Linux).  Then opens the corpus in a new process and times the first batch of an epoch.

    python benchmarks/prepare.py --pairs 5000000 --processes 2

takes about 10 minutes on 2 cores and 4 GB of disk; the text is removed at the end.
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
    from collections.abc import Iterator

WORDS = 200_000
"""Vocabulary of each side, in words."""
BLOCK = 50_000
"""Pairs generated at a time."""
EVERY = 0.1
"""Seconds between memory measurements."""
EPOCH = """
import sys, time
began = time.perf_counter()
from weft.runtime.data.planning import stream_plans
from weft.runtime.data.settings import BatchSettings
from weft.runtime.data.shards.corpus import Corpus
imported = time.perf_counter()
corpus = Corpus.open(sys.argv[1])
settings = BatchSettings(tokens=int(sys.argv[2]))
epoch, position, rows = next(stream_plans(corpus, settings, 1))
[corpus.pair(int(row)) for row in rows]
print(time.perf_counter() - imported)
"""


def words(letters: str, vowels: str) -> list[str]:
    """Return generated words, short words first, because frequent words are short."""
    syllables = [a + b for a in letters for b in vowels]
    base, made = len(syllables), []
    for number in range(WORDS):
        rest, word = number, ""
        while True:
            word += syllables[rest % base]
            rest = rest // base - 1
            if rest < 0:
                break
        made.append(word)
    return made


def write_text(folder: Path, pairs: int, seed: int = 1) -> None:
    """Write training and validation text of both sides."""
    rng = np.random.default_rng(seed)
    sides = {"en": words("bcdfghjklmnp", "aeiou"), "de": words("rstvwzhklmng", "aeiouäöü")}
    for split, count in (("train", pairs), ("valid", 2000)):
        files = {side: (folder / f"{split}.{side}").open("w") for side in sides}
        for start in range(0, count, BLOCK):
            size = min(BLOCK, count - start)
            lengths = np.clip(rng.lognormal(3.0, 0.6, size), 1, 180)
            for side, known in sides.items():
                own = np.maximum(1, lengths * rng.lognormal(0.0, 0.15, size)).astype(np.int64)
                # Zipf's law: the logarithm of a rank is uniform.
                ranks = (WORDS ** rng.random(int(own.sum()))).astype(np.int64) - 1
                text, begin = [known[rank] for rank in ranks.tolist()], 0
                lines = []
                for length in own.tolist():
                    lines.append(" ".join(text[begin : begin + length]))
                    begin += length
                files[side].write("\n".join(lines) + "\n")
        for file in files.values():
            file.close()


class Watch:
    """Monitors the memory of a process and its descendants until it ends."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.peak = self.peak_resident = self.most = 0
        self.at = 0.0
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        began = time.monotonic()
        while self.process.poll() is None:
            found = [_memory(pid) for pid in _family(self.process.pid)]
            shared = sum(pss for pss, _ in found)
            if shared > self.peak:
                self.peak, self.at = shared, time.monotonic() - began
            self.peak_resident = max(self.peak_resident, sum(rss for _, rss in found))
            self.most = max(self.most, len(found))
            time.sleep(EVERY)

    def join(self) -> None:
        """Wait for the process to end."""
        self._thread.join()


def _family(pid: int) -> Iterator[int]:
    """Yield a process and its descendants."""
    yield pid
    try:
        below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return
    for child in below:
        yield from _family(int(child))


def _memory(pid: int) -> tuple[int, int]:
    """Return the PSS and RSS of a process, in kB."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0, 0
    known = {line.split(":")[0]: line.split()[1] for line in lines[1:]}
    return int(known.get("Pss", 0)), int(known.get("Rss", 0))


def main() -> None:
    """Generate the text, prepare it, and print the measurements."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--pairs", type=int, default=5_000_000)
    options.add_argument("--processes", type=int, default=2)
    options.add_argument("--vocabulary", type=int, default=37_000)
    options.add_argument(
        "--tokens",
        type=int,
        default=25_000,
        help="tokens per batch, for the start of an epoch (default: %(default)s)",
    )
    options.add_argument("--folder", help="working folder (default: a temporary folder)")
    options.add_argument("--out", help="JSON file for the measurements")
    given = options.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as made:
        found = measure(Path(made), given)
    print(json.dumps(found, indent=2))
    if given.out:
        Path(given.out).write_text(json.dumps(found, indent=2) + "\n")


def measure(folder: Path, given: argparse.Namespace) -> dict[str, object]:
    """Return the measurements of one preparation."""
    began = time.perf_counter()
    write_text(folder, given.pairs)
    run = {
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
        "tokenizers": {"tokenizer": {"type": "bpe", "vocab_size": given.vocabulary}},
    }
    (folder / "drill.json").write_text(json.dumps(run))
    text_bytes = sum(path.stat().st_size for path in folder.glob("train.*"))
    print(
        f"text generated: {text_bytes / 1e6:,.0f} MB, {time.perf_counter() - began:.0f} s",
        flush=True,
    )
    command = ["prepare", str(folder / "drill.json"), "--out", str(folder / "out")]
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "weft", *command, "--processes", str(given.processes)]
    )
    watch = Watch(process)
    if process.wait():
        sys.exit(1)
    seconds = time.perf_counter() - began
    watch.join()
    prepared = folder / "out" / "prepared"
    report = json.loads((prepared / "prepared.json").read_text())["report"]
    starts = [
        float(
            subprocess.run(
                [sys.executable, "-c", EPOCH, str(prepared / "train"), str(given.tokens)],
                check=True,
                capture_output=True,
                text=True,
            ).stdout
        )
        for _ in range(3)
    ]
    return {
        "pairs": given.pairs,
        "processes": given.processes,
        "text MB": round(text_bytes / 1e6),
        "seconds": round(seconds, 1),
        "pairs per second": round(given.pairs / seconds),
        "most processes": watch.most,
        "peak MB, all processes (PSS)": round(watch.peak / 1024),
        "peak MB, all processes (RSS)": round(watch.peak_resident / 1024),
        "peak at second": round(watch.at),
        "corpus MB": round(sum(p.stat().st_size for p in prepared.rglob("*.*")) / 1e6),
        "epoch start seconds": [round(each, 2) for each in starts],
        "report": report,
    }


if __name__ == "__main__":
    main()
