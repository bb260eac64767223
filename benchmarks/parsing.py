r"""Compare a parser checkpoint with supar's con-crf on one treebank, with one scorer.

    weft train parsing-span-craft --set data.root=DIR --out outputs/span
    python benchmarks/parsing.py ours outputs/span/averaged --gold DIR/dev.clean.trees.gz
    pip install --target supar --no-deps supar nltk dill tqdm regex omegaconf \
        antlr4-python3-runtime joblib click
    python benchmarks/parsing.py concrf --supar supar --seconds 1000 --out outputs/concrf \
        --train DIR/train.clean.trees.gz --gold DIR/dev.clean.trees.gz
    weft study report parser-curves --form json
    python benchmarks/parsing.py curves outputs/parser-curves/report/parser-curves.json \
        --concrf outputs/concrf/curve.json --plot docs/parser-curves.png

con-crf (Zhang et al. 2020) reads words and characters and uses nothing pretrained.  It has its
own settings except for the LSTM width and the batch size, and trains all epochs that begin within
the CPU seconds.  Its parses are scored by Weft's EVALB after every epoch; `curve.json` has the
scores.  `curves` draws them beside the runs of the study `parser-curves`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import statistics
import sys
import time
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import torch
from weft.extensions.parsing.metrics.evalb import COLLINS, score
from weft.extensions.parsing.metrics.metric import measure
from weft.extensions.parsing.trees.reader import read_file
from weft.extensions.parsing.trees.trees import Leaf, Tree, read_all
from weft.runtime.model.opening import open_model

CONCRF: dict[str, Any] = {
    "encoder": "lstm",
    "feat": ["char"],
    "embed": None,
    "n_embed": 100,
    "lr": 2e-3,
    "mu": 0.9,
    "nu": 0.9,
    "eps": 1e-12,
    "weight_decay": 1e-5,
    "clip": 5.0,
    "decay": 0.75,
    "decay_steps": 5000,
    "min_freq": 2,
    "fix_len": 20,
    "mbr": True,
    "buckets": 32,
    "build": True,
    "checkpoint": False,
    "device": "-1",
    "epochs": 1000,
    "patience": 1000,
}
"""supar's own configuration of crf-con with characters."""

KINDS = {
    "chart-words": "charts, word dropout",
    "chart": "charts",
    "tags": "tags",
    "sequence": "decoder",
}
"""Rows of `parser-curves` without their seconds, and how the drawing names them."""


def trees_of(path: Path) -> list[Tree]:
    """Return the trees of a file."""
    return [tree for tree in read_file(path) if isinstance(tree, Tree)]


def with_leaves(tree: Tree, leaves: Iterator[Leaf]) -> Tree:
    """Return a tree with its leaves replaced."""
    return Tree(
        tree.label,
        tuple(
            next(leaves) if isinstance(child, Leaf) else with_leaves(child, leaves)
            for child in tree.children
        ),
    )


def report(name: str, gold: list[Tree], found: Iterable[Tree], seconds: float) -> float:
    """Print the scores of parses, with the words of the gold trees, and return F1."""
    same = [with_leaves(t, g.leaves()) for t, g in zip(found, gold, strict=True)]
    total = score(map(str, gold), map(str, same), COLLINS).all
    print(
        f"{name}: F1 {total.f1:.2f}  recall {total.recall:.2f}  precision {total.precision:.2f}  "
        f"errors {total.errors}  {seconds:.0f} CPU seconds",
        flush=True,
    )
    return total.f1


def ours(options: argparse.Namespace) -> None:
    """Score a checkpoint of Weft."""
    gold = trees_of(options.gold)
    begun = time.process_time()
    predictor: Any = open_model(options.checkpoint).predictor()
    found = measure(predictor.parser, gold)
    trees = [parse.tree for parse in found.parses if parse is not None]
    report(f"{options.checkpoint}, parsing", gold, trees, time.process_time() - begun)
    print(f"malformed {found.malformed}, repairs {found.repairs.total}")
    if found.tagged:
        print(f"correct tags: {100 * found.tags / found.tagged:.2f} %")


def concrf(options: argparse.Namespace) -> None:
    """Train con-crf and score it after every epoch."""
    # Stub out stanza, which only supar's tokenizer of raw text needs.
    sys.modules.setdefault("stanza", types.ModuleType("stanza"))
    sys.path.insert(0, str(options.supar))
    supar = importlib.import_module("supar")
    gold = trees_of(options.gold)
    options.out.mkdir(parents=True, exist_ok=True)
    files = {"train": options.out / "train.pid", "dev": options.out / "dev.pid"}
    for path, trees in ((files["train"], trees_of(options.train)), (files["dev"], gold)):
        path.write_text("".join(f"{tree}\n" for tree in trees), encoding="utf-8")
    found = options.out / "dev.parsed"

    class Timed(supar.CRFConstituencyParser):  # type: ignore[misc, name-defined]
        """Stops when its CPU time is used up."""

        NAME = "crf-constituency"
        used = 0.0
        curve: ClassVar[list[list[float]]] = []

        def _train(self, loader: Any) -> None:
            begun = time.process_time()
            super()._train(loader)
            self.used += time.process_time() - begun

        def _evaluate(self, loader: Any) -> Any:
            given = super()._evaluate(loader)
            if len(self.curve) == self.epoch:  # supar asks for the test data too, the same file
                return given
            self.predict(str(files["dev"]), pred=str(found), verbose=False, **CONCRF)
            parsed = [t for t in read_all(found.read_text()) if isinstance(t, Tree)]
            f1 = report(f"con-crf, epoch {self.epoch}", gold, parsed, self.used)
            self.curve.append([self.used, f1])
            (options.out / "curve.json").write_text(json.dumps(self.curve) + "\n")
            self.transform.train()
            if self.used > options.seconds:
                raise KeyboardInterrupt
            return given

    names = {**{key: str(path) for key, path in files.items()}, "test": str(files["dev"])}
    settings = {**CONCRF, **names, "n_lstm_hidden": options.hidden, "batch_size": options.batch}
    parser = Timed.build(str(options.out / "model"), **settings)
    print(f"con-crf: {sum(w.numel() for w in parser.model.parameters()):,} parameters")
    try:
        parser.train(**settings, verbose=False)
    except KeyboardInterrupt:
        print(f"stopped after {parser.used:.0f} CPU seconds of training")


def kind_of(name: str) -> str:
    """Return the name of a row without its seconds; the baseline is `tags-1200`.

    >>> kind_of("chart-600-words"), kind_of("baseline")
    ('chart-words', 'tags')
    """
    return "tags" if name == "baseline" else re.sub(r"-\d+", "", name)


def curves(options: argparse.Namespace) -> None:
    """Draw F1 against seconds of training: the runs of the study, and the epochs of con-crf.

    A row is drawn at the shortest time of its seeds, which differ only in what else the machine
    did, with a mark for each seed and a line through the means.
    """
    record = json.loads(options.report.read_text())
    lines: dict[str, list[tuple[float, list[float]]]] = {}
    for row in record["rows"]:
        runs = [row["seeds"][seed] for seed in row["trained"]]
        scores = [run["splits"]["dev"]["scores"]["evalb"] for run in runs]
        seconds = min(run["training"]["seconds"] for run in runs)
        lines.setdefault(kind_of(row["name"]), []).append((seconds, scores))

    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7.2, 4.4), layout="constrained")
    for (kind, label), mark in zip(KINDS.items(), "osD^", strict=True):
        points = sorted(lines[kind])
        means = [statistics.fmean(scores) for _, scores in points]
        [line] = axes.plot([seconds for seconds, _ in points], means, label=label)
        for seconds, scores in points:
            axes.plot([seconds] * len(scores), scores, mark, color=line.get_color(), markersize=4)
    for number, path in enumerate(options.concrf, 1):
        label = f"con-crf, training {number}" if len(options.concrf) > 1 else "con-crf, each epoch"
        epochs = zip(*json.loads(path.read_text()), strict=True)
        axes.plot(*epochs, "--", color="black", linewidth=1, label=label)
    axes.set(xlabel="seconds of training on one core", ylabel="F1 on the development trees")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(options.plot, dpi=144)


def main() -> None:
    """Parse the options and run the chosen measurement."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    kinds = parser.add_subparsers(required=True)
    one = kinds.add_parser("ours")
    one.add_argument("checkpoint")
    one.set_defaults(run=ours)
    other = kinds.add_parser("concrf")
    other.add_argument(
        "--supar", type=Path, required=True, help="folder into which pip installed supar"
    )
    other.add_argument("--train", type=Path, required=True)
    other.add_argument(
        "--seconds",
        type=float,
        default=1000.0,
        help="CPU seconds for training (default: %(default)s)",
    )
    other.add_argument(
        "--hidden",
        type=int,
        default=200,
        help="LSTM width (supar's own: 400; default: %(default)s)",
    )
    other.add_argument(
        "--batch",
        type=int,
        default=1500,
        help="batch size in tokens (supar's own: 5000; default: %(default)s)",
    )
    other.add_argument("--out", type=Path, required=True)
    other.set_defaults(run=concrf)
    drawn = kinds.add_parser("curves")
    drawn.add_argument("report", type=Path, help="report of the study parser-curves as JSON")
    drawn.add_argument(
        "--concrf", type=Path, nargs="+", default=[], help="curve.json of trainings of con-crf"
    )
    drawn.add_argument("--plot", type=Path, required=True)
    drawn.set_defaults(run=curves, threads=1)
    for each in (one, other):
        each.add_argument("--gold", type=Path, required=True)
        each.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    torch.set_num_threads(options.threads)
    options.run(options)


if __name__ == "__main__":
    main()
