"""Compare training speed on trees that are prepared once with trees parsed in each batch.

    python benchmarks/parsing_columns.py DIR --kind chart tags --updates 60

DIR contains the treebank of the runs `chart-parsing-craft` and `parsing-span-craft`.  Both runs
have the same batches, the same initial weights and the same losses, which the script checks: the
run of format 2 finds words and spans or tags while it trains, the objective reads them from the
prepared table.  Updates alternate in blocks, so that other jobs slow both equally, and CPU seconds
are reported besides time.  Batches are made in the thread that trains: with a free core, training
makes them ahead of time in another thread, and they cost nothing.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from weft.runtime import api
from weft.runtime.compile.autotune import using
from weft.runtime.train.device import choose
from weft.runtime.train.distributed.world import World
from weft.runtime.train.run import load_run
from weft.runtime.train.trainer import Trainer

RUNS = {
    "chart": ("parsing-span-craft", "chart-parsing-craft"),
    "tags": ("parsing-tags-craft", "tag-parsing-craft"),
}
"""Kind of parser to its run of format 2 and its objective."""
BLOCK = 5
"""Updates between turns."""


class Timed:
    """Updates of one run, with the time that they take."""

    def __init__(self, name: str, options: argparse.Namespace, folder: Path) -> None:
        """Prepare the data and build the model."""
        objective = any(name == new for _, new in RUNS.values())
        train: dict[str, Any] = {"trees": [options.train]}
        if objective:
            kind = "chart" if name.startswith("chart") else "tags"
            train = {"trees": {"files": [options.train], "decoder": kind}}
        words = "tokenizers.words" if objective else "tokenizer"
        changes = {
            "data.root": str(options.data),
            "data.train": train,
            f"{words}.vocab_size": options.vocab,
            "threads": options.threads,
            "precision": options.precision,
        }
        run, source = load_run(name, changes)
        place = choose(run)
        context = api._training_context(  # noqa: SLF001
            run, source, folder, place, World(), api.Silent(), None
        )
        self.trainer = Trainer(context, resume=False)
        self.work: Iterator[Any] = self.trainer._stream_micro_batches()  # noqa: SLF001
        self.losses: list[float] = []
        self.speeds: list[float] = []
        self.seconds = self.cpu = self.sentences = 0.0

    def updates(self, count: int, *, counts: bool) -> None:
        """Run some updates, and add up their time and sentences if it counts."""
        sentences = 0
        started, cpu = time.perf_counter(), time.process_time()
        with using(self.trainer.kernels):
            for _ in range(count):
                update = next(self.work)
                sums = self.trainer._update(update)  # noqa: SLF001
                self.losses.append(float(sums[0]))
                sentences += sum(len(batch.rows) for _, batch in update.batches)
        seconds = time.perf_counter() - started
        if counts:
            self.speeds.append(sentences / seconds)
            self.seconds += seconds
            self.cpu += time.process_time() - cpu
            self.sentences += sentences


def compare(kind: str, options: argparse.Namespace) -> None:
    """Measure one kind of parser."""
    with tempfile.TemporaryDirectory() as folder:
        old, new = (Timed(name, options, Path(folder, name)) for name in RUNS[kind])
        for one in (old, new):
            one.updates(BLOCK, counts=False)
        for _ in range(options.updates // BLOCK):
            for one in (old, new):
                one.updates(BLOCK, counts=True)
        for one in (old, new):
            one.trainer.history.close()
    worst = max(abs(a / b - 1) for a, b in zip(old.losses, new.losses, strict=True))
    speeds = [one.sentences / one.seconds for one in (old, new)]
    costs = [1000 * one.cpu / one.sentences for one in (old, new)]
    ratios = [b / a for a, b in zip(old.speeds, new.speeds, strict=True)]
    print(
        f"{kind}: {speeds[0]:.1f} and {speeds[1]:.1f} sentences per second, ratio"
        f" {speeds[1] / speeds[0]:.2f}; of blocks {min(ratios):.2f} to {max(ratios):.2f}, median"
        f" {statistics.median(ratios):.2f}; {costs[0]:.2f} and {costs[1]:.2f} CPU milliseconds per"
        f" sentence, ratio {costs[0] / costs[1]:.2f}; losses differ by at most {worst:.1e}",
        flush=True,
    )


def main() -> None:
    """Parse the options and compare."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("data", type=Path, help="folder of the treebank")
    parser.add_argument("--kind", nargs="+", choices=list(RUNS), default=list(RUNS))
    parser.add_argument("--updates", type=int, default=60, help="default: %(default)s")
    parser.add_argument("--threads", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--train", default="train.clean.trees.gz", help="default: %(default)s")
    parser.add_argument("--vocab", type=int, default=8000, help="default: %(default)s")
    parser.add_argument("--precision", choices=["auto", "float32", "bfloat16"], default="auto")
    options = parser.parse_args()
    for kind in options.kind:
        compare(kind, options)


if __name__ == "__main__":
    main()
