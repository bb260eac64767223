"""The command `weft compare`: the difference between two systems, tested."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ...plugin import (
    STUDIES,
    DataRoot,
    InputError,
    Json,
    Metrics,
    PlaceUncompiled,
    aligned,
    argument,
    command,
    complete_files,
    file_option,
    is_blank,
    json_value,
    open_checkpoints,
    option,
    read_lines,
    wrong,
)
from ...runtime.cli.common import terminal

if TYPE_CHECKING:
    from ...plugin import Metric
    from .comparison import Comparison, System


@command(
    STUDIES,
    "weft compare outputs/a/averaged outputs/b/averaged --test test_2016_flickr",
    "weft compare a1,a2,a3 b1,b2,b3 --test test_2016_flickr",
    "weft compare a.de b.de --reference test.de --metric bleu",
    note="With one checkpoint of each system, the test is sacreBLEU's approximate randomization, "
    "and its conclusion is about these checkpoints. With several, the spread over seeds counts.",
)
def compare(
    first: Annotated[
        str,
        argument(
            "A",
            "Checkpoint folder, or a file with outputs; several seeds are separated by commas.",
            complete_files,
        ),
    ],
    second: Annotated[str, argument("B", "The same of the other system.", complete_files)],
    *,
    test: Annotated[
        str | None,
        option("--test", "Test set of the run, or valid. [default: the only one]", metavar="NAME"),
    ] = None,
    data_root: DataRoot = None,
    reference: Annotated[
        str | None, file_option("--reference", "Lines that the outputs are compared with.")
    ] = None,
    source: Annotated[
        str | None, file_option("--source", "Lines that were translated, which comet reads.")
    ] = None,
    metrics: Metrics = None,
    json_: Json = False,
    placement: PlaceUncompiled,
) -> None:
    """Compare two systems on the same test set: difference, interval and paired test.

    Raises:
        InputError: a system cannot be read, or the systems were measured on different examples.
    """
    from ...plugin import METRICS

    sides = [[Path(part) for part in text.split(",")] for text in (first, second)]
    paths = [path for side in sides for path in side]
    for path in paths:
        if not path.exists():
            help_ = "give files of outputs, or checkpoints"
            raise InputError(
                "the file or checkpoint does not exist", location=str(path), help=help_
            )
    files = {path.is_file() for path in paths}
    if len(files) > 1:
        raise InputError(
            "one system is a checkpoint, and the other a file",
            location=second,
            help="give two checkpoints, or translate with both and give the files of outputs",
        )
    chosen = [METRICS.parse(metric, "--metric") for metric in metrics or ()]
    if files == {True}:
        if reference is None:
            raise wrong("--reference", "outputs need the file that they are compared with")
        options = {"test": test, "data-root": data_root, **placement}
        for name, value in options.items():
            if value is not None:
                raise wrong(f"--{name}", "it has no effect on files of outputs")
        chosen = chosen or [METRICS.parse("bleu", "--metric")]
        answers = [[_lines(path) for path in side] for side in sides]
        column, rows = "target", _rows(reference, source)
    else:
        if reference is not None or source is not None:
            option = "--source" if reference is None else "--reference"
            raise wrong(option, "the test set of a checkpoint has references and sources")
        answers, rows, column, chosen = _predicted(sides, test, data_root, chosen, placement)
    comparisons = [_compared(metric, answers, rows, column, (first, second)) for metric in chosen]
    if json_:
        print(
            json.dumps(
                [{"metric": name, **comparison.as_json()} for name, _, comparison in comparisons],
                indent=2,
            )
        )
        return
    same = _equal(*answers)
    for name, means, comparison in comparisons:
        print(_text(name, means, comparison, same=same))


def _rows(reference: str, source: str | None) -> list[dict[str, Any]]:
    """Return the references in a file as rows, with the sources of another one.

    Raises:
        InputError: a file cannot be read, or they have different numbers of lines.
    """
    columns = {"target": _lines(Path(reference))}
    if source is not None:
        columns["source"] = _lines(Path(source))
    if len({len(lines) for lines in columns.values()}) > 1:
        numbers = " references and ".join(str(len(lines)) for lines in columns.values())
        raise InputError(
            f"there are {numbers} sources",
            location=str(source),
            help="line n of one file must belong to line n of the other",
        )
    return [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]


def _lines(path: Path) -> list[Any]:
    """Return the outputs in a file: JSON values of a `.jsonl` file, or lines.

    Raises:
        InputError: the file cannot be read, or a line is not UTF-8 or not JSON.
    """
    if ".jsonl" not in path.suffixes:
        return list(read_lines(path))
    return [
        json_value(line, f"{path}:{number}")
        for number, line in enumerate(read_lines(path), 1)
        if not is_blank(line)
    ]


def _predicted(
    sides: list[list[Path]],
    test: str | None,
    root: str | None,
    metrics: list[Metric],
    placement: dict[str, Any],
) -> tuple[list[list[list[Any]]], list[dict[str, Any]], str, list[Metric]]:
    """Return the answers of each checkpoint, the rows, the predicted column, and the metrics.

    Raises:
        InputError: a checkpoint cannot be opened, or there is no such test set.
    """
    answers: list[list[list[Any]]] = []
    first: list[dict[str, Any]] = []
    column = ""
    for side in sides:
        answers.append([])
        for path in side:
            model = open_checkpoints(str(path), None, placement, compiled=False)
            reading = model.answering
            test_sets = [*reading.run.data.test]
            if test is None and len(test_sets) != 1:
                listed = ", ".join([*test_sets, "valid"])
                raise InputError("name a test set", location="--test", help=f"known: {listed}")
            name = test or test_sets[0]
            rows = reading.rows(name, root)
            terminal.notice(f"{path}: predicting {len(rows):,} rows of {name}")
            answers[-1].append(list(model.predictor(None).predict(rows)))
            metrics = metrics or [metric for metric in reading.run.metrics() if _is_sum(metric)]
            rows = [{key: row[key] for key in reading.run.data.columns} for row in rows]
            answered = str(reading.run.answers)
            if first and (rows, answered) != (first, column):
                raise InputError("the checkpoints have different test sets", location=str(path))
            first, column = rows, answered
    if not metrics:
        raise InputError("the run has no metric that can be compared", help="give --metric bleu")
    return answers, first, column, metrics


def _is_sum(metric: Metric) -> bool:
    from ...plugin import SumMetric

    return isinstance(metric, SumMetric)


def _compared(
    metric: Metric,
    answers: list[list[list[Any]]],
    rows: Sequence[Mapping[str, Any]],
    column: str,
    names: tuple[str, str],
) -> tuple[str, list[float], Comparison]:
    """Return a metric's name, its means and the comparison of both systems.

    Raises:
        InputError: the metric does not fit.
    """
    import numpy as np

    from ...plugin import SumMetric
    from .comparison import System
    from .comparison import compare as compared

    if metric.needs != "predictions":
        raise InputError(f"'{metric.name}' cannot be computed from outputs", location="--metric")
    references = metric.references(rows, column)
    systems: list[System] = []
    for name, runs in zip(names, answers, strict=True):
        values = tuple(metric.measure(predictions, references).value for predictions in runs)
        sums = (
            tuple(metric.statistics(predictions, references) for predictions in runs)
            if isinstance(metric, SumMetric)
            else ()
        )
        systems.append(System(name=name, values=values, sums=sums))
    value_of = metric.value_of if isinstance(metric, SumMetric) else None
    [comparison] = compared(systems, [names], value_of, higher_is_better=metric.higher_is_better)
    return metric.name, [float(np.mean(system.values)) for system in systems], comparison


def _equal(first: list[list[Any]], second: list[list[Any]]) -> bool:
    """Return whether two systems have the same predictions, in any order of their seeds."""
    unmatched = list(second)
    for answer in first:
        if answer not in unmatched:
            return False
        unmatched.remove(answer)
    return not unmatched


def _text(name: str, means: list[float], comparison: Comparison, *, same: bool) -> str:
    """Return a comparison as text.

    Args:
        name: name of the metric.
        means: its means for A and B.
        comparison: the comparison.
        same: whether both have the same predictions, which leaves nothing to test.
    """
    lines = [f"{name}: A {aligned(means[0], 4)}, B {aligned(means[1], 4)}"]
    if same:
        return f"{lines[0]}\n  A and B have the same predictions"
    lines.append(f"  B - A      {aligned(comparison.difference, 4, sign=True)}")
    if comparison.low is not None and comparison.high is not None:
        low, high = (aligned(end, 4, sign=True) for end in (comparison.low, comparison.high))
        lines[-1] += f"  [{low}, {high}] at 95 %"
    if comparison.p is not None:
        lines.append(f"  p          {comparison.p:.4f}  {comparison.test}")
    if comparison.detectable is not None:
        lines.append(f"  detectable {aligned(comparison.detectable, 4)} with 80 % power")
    words = {"better": "B is better", "worse": "B is worse"}
    lines.append(f"  {words.get(comparison.verdict, comparison.verdict)}")
    return "\n".join(lines)
