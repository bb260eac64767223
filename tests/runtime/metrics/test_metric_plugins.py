"""Metrics of installed packages: the example of the documentation, and broken plug-ins."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import BaseModel
from weft.runtime.metrics.metric import Metric
from weft.runtime.metrics.registry import METRICS, SHIPPED
from weft.runtime.system.plugins import Plugins, Selected
from weft.specs.findings import InputError

PAGE = (Path(__file__).parents[3] / "docs/metrics.md").read_text(encoding="utf-8")
[CODE] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def installed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, entry: str, code: str = CODE
) -> Plugins[Metric]:
    """Write a package with an entry point, as pip does; return the metrics."""
    (folder / "own_metric_of_test.py").write_text(code)
    about = folder / "length_ratio-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: length-ratio\nVersion: 1\n")
    (about / "entry_points.txt").write_text(f"[weft.metrics]\n{entry}\n")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "own_metric_of_test", raising=False)
    return Plugins("metric", "weft.metrics", Metric, SHIPPED, "weft.runtime.metrics")  # type: ignore[type-abstract]


def test_the_example_of_the_page_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """3 words for 2."""
    entry = "length_ratio = own_metric_of_test:LengthRatio"
    metrics = installed(tmp_path, monkeypatch, entry)

    one = metrics.parse("length_ratio", "run.json")

    assert one.measure(["a b c"], ["d e"]).value == 1.5
    assert not one.higher_is_better


def test_installed_metrics_are_listed_after_the_shipped_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the first line of their docstring and their package, or what prevents their import."""
    entry = "ratio = own_metric_of_test:LengthRatio\nbroken = own_metric_of_test:Nothing"

    lines = installed(tmp_path, monkeypatch, entry).lines()

    assert list(lines)[: len(SHIPPED)] == [*SHIPPED]
    assert {*lines} == {*METRICS.names(), *SHIPPED, "ratio", "broken"}
    assert lines["accuracy"] == "Percentage of examples whose class is predicted"
    assert lines["ratio"].endswith(" (from length-ratio)")
    assert lines["broken"].startswith("cannot be imported: AttributeError")


@pytest.mark.parametrize(
    ("entry", "code", "name", "problem"),
    [
        ("bleu = own_metric_of_test:LengthRatio", CODE, "bleu", "already exists, from weft"),
        ("one = own_metric_of_test:Nothing", CODE, "one", "cannot be imported: AttributeError"),
        ("one = own_metric_of_test:LengthRatio", "1 / 0", "one", "ZeroDivisionError"),
        ("one = own_metric_of_test:LengthRatio", CODE, "one", "the type of .* is not 'one'"),
        ("one = own_metric_of_test:Measured", CODE, "one", "is not a subclass of .*Metric"),
    ],
)
def test_a_broken_plug_in_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    entry: str,
    code: str,
    name: str,
    problem: str,
) -> None:
    """The message says which package to correct or to remove."""
    metrics = installed(tmp_path, monkeypatch, entry, code)

    with pytest.raises(InputError, match=problem) as caught:
        metrics.parse(name, "run.json")

    assert "package length-ratio, entry point" in caught.value.location


def test_an_unknown_name_or_key_suggests_the_nearest() -> None:
    """With the place of the wrong value."""
    with pytest.raises(InputError, match="did you mean 'chrf'") as caught:
        METRICS.parse("chfr", "run.json#/metrics/0")
    assert caught.value.location == "run.json#/metrics/0/type"
    with pytest.raises(InputError, match="did you mean 'average'"):
        METRICS.parse({"type": "f1", "avarage": "micro"}, "run.json#/metrics/0")


def test_a_record_may_contain_metrics() -> None:
    """They are validated, dumped with their settings, and listed in the JSON Schema."""

    class Record(BaseModel):
        metrics: list[Annotated[Metric, Selected(METRICS)]]

    record = Record.model_validate({"metrics": ["bleu", {"type": "f1", "average": "micro"}]})

    assert [one.name for one in record.metrics] == ["bleu", "f1_micro"]
    assert Record.model_validate_json(record.model_dump_json()) == record
    assert "tokenize" in str(Record.model_json_schema())
