"""Run the complete system on a small generated corpus, in a few minutes: `weft demo`."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ..graphs.draw.diagram import draw
from ..runtime import api
from ..runtime.cli.common.terminal import Reporter
from ..runtime.data.text_files import read_lines
from ..runtime.metrics.text import score
from ..runtime.train.history import plot_curves
from ..runtime.train.objective import Objective
from ..runtime.train.plan import load_run
from ..specs.findings import InputError
from .spelled_numbers import write_corpus

RUN = "demo"
SPEC = "transformer-tiny"
TRAIN, VALID, TEST = 20_000, 300, 500
"""Number of lines in each part of the corpus."""
SHOWN = 6
"""Number of translations to print."""


def demo(folder: Path, *, updates: int | None = None) -> None:
    """Check and draw the model of the run, make a corpus, train, translate and score.

    Args:
        folder: output folder.
        updates: number of updates to train; None trains the complete run.

    Raises:
        InputError: training was stopped, or a file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    console = Console(highlight=False, soft_wrap=True)
    reporter = Reporter()
    console.rule("1. check and draw the model of the run")
    _check_and_draw(folder, console)
    console.rule("2. make a corpus: numbers spelled out, English to German")
    _make_corpus(folder, console)
    console.rule("3. train")
    for old in ("checkpoints", "best", "averaged", "metrics.jsonl", "tensorboard"):
        _remove(folder / old)
    overrides: dict[str, object] = {"data.root": str(folder / "corpus")}
    if updates is not None:
        overrides["updates"] = updates
    with reporter.shown():
        result = api.train(
            RUN,
            out=folder,
            overrides=overrides,
            listener=reporter,
            report=reporter.prepared,
        )
    plot_curves(folder / "metrics.jsonl", folder / "curves.png")
    console.print(f"loss and learning rate: {folder / 'curves.png'}")
    if not result.finished or result.averaged is None:
        raise InputError(f"stopped by {result.reason}", help="run the demo again")
    console.rule("4. translate test lines, which are not in the training data")
    model = api.open_model(result.averaged)
    sources, references = (list(read_lines(folder / "corpus" / f"test.{s}")) for s in ("en", "de"))
    found = model.translate(sources)
    _show(console, sources, references, found)
    scores = score(found, references)
    exact = sum(a == b for a, b in zip(found, references, strict=True)) / len(found)
    console.print(f"sacreBLEU    {scores.values['bleu']:6.2f}  {scores.signatures['bleu']}")
    console.print(f"exact match  {exact:6.1%}  of {len(found)} lines")
    console.rule("Next steps")
    console.print(
        f'echo "three hundred and seven" | weft translate {result.averaged}\n'
        f"weft show {SPEC}\n"
        f"weft draw transformer-base -o base.svg --form typed\n"
        f"weft blocks attention\n"
        f"tensorboard --logdir {folder / 'tensorboard'}\n"
        f"weft train multi30k-en-de --set data.root=DIR    # real text, see README.md",
        markup=False,
    )


def _check_and_draw(folder: Path, console: Console) -> None:
    trained = Objective.of(*load_run(RUN)).graph
    [graph] = [model for _, model in trained.models()]
    console.print(f"{graph.name}: valid; {graph.parameters():,} parameters")
    if shutil.which("dot") is None:
        console.print(
            "skipped drawing, because 'dot' is missing; on Debian: apt-get install graphviz"
        )
        return
    for suffix in ("svg", "png"):
        console.print(f"drawn: {draw(graph, folder / f'{SPEC}.{suffix}')}")


def _make_corpus(folder: Path, console: Console) -> None:
    corpus = folder / "corpus"
    write_demo_corpus(corpus)
    console.print(
        f"{TRAIN:,} training lines in {corpus}, without the numbers of the test lines; for example"
    )
    pairs = zip(read_lines(corpus / "train.en"), read_lines(corpus / "train.de"), strict=True)
    for _, (source, target) in zip(range(3), pairs, strict=False):
        console.print(f"  {source}  ->  {target}", markup=False)


def write_demo_corpus(corpus: Path) -> None:
    """Write the corpus of the demo into a folder, unless it is there.

    Raises:
        InputError: num2words is not installed.
    """
    corpus.mkdir(parents=True, exist_ok=True)
    names = [f"{part}.{side}" for part in ("train", "valid", "test") for side in ("en", "de")]
    if not all((corpus / name).is_file() for name in names):
        write_corpus(corpus, train=TRAIN, valid=VALID, test=TEST, seed=1)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _show(
    console: Console, sources: Sequence[str], references: Sequence[str], found: Sequence[str]
) -> None:
    table = Table()
    for name in ("source", "translation", "correct"):
        table.add_column(name, overflow="fold")
    step = max(1, len(sources) // SHOWN)
    for source, reference, line in list(zip(sources, references, found, strict=True))[::step][
        :SHOWN
    ]:
        table.add_row(source, line, "yes" if line == reference else f"no: {reference}")
    console.print(table)
