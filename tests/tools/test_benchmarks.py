"""`benchmarks/train.py` and `decode.py`: figures in their tables follow from what they measured."""

from __future__ import annotations

import argparse
import importlib
import math
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a function that imports a benchmark; its modules are forgotten after the test."""
    monkeypatch.syspath_prepend(str(FOLDER))
    yield importlib.import_module
    for name in [one.stem for one in FOLDER.glob("*.py")]:
        sys.modules.pop(name, None)


class Pipe:
    """A contestant of `train.py` whose updates take known times."""

    def __init__(self) -> None:
        """Start with the updates still to come: seconds, tokens, CPU seconds, MB."""
        self.updates = iter([(2.0, 100, 3.0, 50.0), (4.0, 100, 7.0, 60.0), (1.0, 100, 1.5, 60.0)])

    def send(self, request: object) -> None:
        """Take a request."""

    def recv(self) -> tuple[float, int, float, float]:
        """Return the figures of an update."""
        return next(self.updates)


@pytest.mark.integration
def test_a_row_of_training_has_the_median_of_its_cpu_seconds(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Updates of 100 tokens in 2, 4 and 1 seconds, 3, 7 and 1.5 of the processor; peak 1,000."""
    train = module("train")
    how = train.How(half=False, best=False, threads=1, size=train.SIZES["trial"])
    monkeypatch.setattr(train, "peak_flops", lambda _: 1000.0)
    monkeypatch.setattr(train, "flops", lambda *_: [(1000.0, 100)])
    monkeypatch.setattr(train.multiprocessing, "get_context", lambda _: None)
    made = train.Contest

    def contest(names: list[str], how: Any) -> Any:
        found = made([], how)
        found.pipes = {name: Pipe() for name in names}
        found.cold = dict.fromkeys(names, 9.0)
        return found

    monkeypatch.setattr(train, "Contest", contest)
    options = argparse.Namespace(tokens=[100], rounds=3, rows=None, in_turn=False, seconds=math.inf)

    [row] = train.meet(["weft"], how, options, ("base", "float32", "shipped"))

    assert (row["median"], row["cpu"], row["peak"], row["share"]) == (50.0, 3.0, 60.0, 0.5)
    cells = "| float32 | 100 | weft | weft train | 50 | 25 to 100 | 1.00 | 50 | 3.00 | 60 | 9 |"
    head, rule, line = train.table([row]).splitlines()
    assert line == cells
    assert head.count("|") == rule.count("|") == cells.count("|")


@pytest.mark.integration
def test_decoding_counts_the_products_of_the_job(module: Any) -> None:
    """Two sentences of 4 tokens, outputs of 4; multiplications and additions count as two.

    A position has 4 d^2 + 2 d f products in a layer of the encoder, 6 d^2 + 2 d f in one of the
    decoder, and 37,000 d in the output projection.  Keys and values of the source have 2 d^2 in
    each layer, once for all beams.  Attention over n positions has 2 n d.
    """
    options = Namespace(generate=False, sentences=2, length=4, spread=0)
    d, f, source, target = 512, 2048, 2 * 4, 2 * 4
    encoder = 6 * source * (4 * d * d + 2 * d * f + 2 * 4 * d)
    fixed = 6 * source * 2 * d * d
    steps = 6 * target * (6 * d * d + 2 * d * f) + target * 37_000 * d
    attention = 6 * 2 * d * (2 * (1 + 2 + 3 + 4) + target * 4)
    flops = module("decode").flops

    assert flops(options, 1) == 2 * (encoder + fixed + steps + attention)
    assert flops(options, 3) == 2 * (encoder + fixed + 3 * (steps + attention))


def test_a_row_of_decoding_has_a_share_of_its_peak(
    module: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """60 operations in 2 seconds are 30 a second, half of a peak of 60; int8 has no peak here."""
    decode = module("decode")
    share = decode.share(60.0, [2.0, 1.0, 3.0], [70.0, 60.0, 50.0])
    row = {"beam": 1, "seconds": [2.0], "cpu": [3.0], "peak": 5.0}
    rows = [{**row, "name": "weft float32", "share": share}]
    rows += [{**row, "name": "weft int8, float32", "share": decode.share(60.0, [2.0], None)}]

    decode.report(rows, 64)

    head, rule, first, second = capsys.readouterr().out.splitlines()[-4:]
    assert share == 0.5
    assert first == "| weft float32 | 32.00 | 32.00 to 32.00 | nan | 50 | 3.00 | 5 |"
    assert second == "| weft int8, float32 | 32.00 | 32.00 to 32.00 | nan |  | 3.00 | 5 |"
    assert {one.count("|") for one in (head, rule, first)} == {8}


def test_the_precision_of_a_contestant_follows_from_its_name(module: Any) -> None:
    """Those that multiply in int8, or leave out a part of the vocabulary, have no share."""
    decode, generators = module("decode"), module("generators").GENERATORS
    names = [*decode.DECODERS, *generators]
    found = {name: decode.precision_of(name) for name in names}

    assert {*found.values()} == {"float32", "bfloat16", None}
    assert found["weft graphs, bfloat16"] == "bfloat16"
    assert found["CTranslate2 int8, bfloat16"] is found["weft shortlist, float32"] is None
