"""The studio of a checkpoint: the curves of its run, and its attention."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from weft.runtime.checkpoint import manifest

NODE = '[data-id="node/decoder.*.cross_attention"]'
Open = Callable[..., Any]


@pytest.fixture
def checkpoint(toy_checkpoint: Path, tmp_path: Path) -> Path:
    """Return a checkpoint of two validations."""
    folder = Path(shutil.copytree(toy_checkpoint, tmp_path / "checkpoint"))
    run = json.loads((folder / "run.json").read_text())
    run["data"]["root"] = str(tmp_path / "missing")  # so that a sentence must be typed
    (folder / "run.json").write_text(json.dumps(run))
    events = [
        {"type": "train", "update": 10 * i, "loss": 9.0 - i, "rate": i / 1000} for i in range(1, 9)
    ]
    events += [{"type": "valid", "update": 40 * i, "loss": 5.0, "bleu": 11.5 * i} for i in (1, 2)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in events))
    manifest.write(folder)
    return folder


def test_the_curves_of_the_run_are_beside_the_drawing(studio: Open, checkpoint: Path) -> None:
    """Losses, a metric and the learning rate; the metric can be chosen, and points are read."""
    page = studio(checkpoint)
    page.wait_for_selector(".chart path")
    charts = page.locator(".chart svg")
    assert [each.get_attribute("aria-label") for each in charts.all()] == [
        "training: 1 at update 80; validation: 5 at update 80",
        "validation: 23 at update 80",
        "learning rate: 0.008 at update 80",
    ]
    assert page.locator(".chart g.score circle").count() == 2
    page.hover(".chart svg >> nth=1", position={"x": 60, "y": 40})
    page.wait_for_selector("figcaption >> text=11.5")
    page.select_option("[aria-label='validation metric']", "loss")
    page.wait_for_selector(".chart svg[aria-label='validation: 5 at update 80']")
    page.click("button:text-is('Run')")
    assert page.locator(".chart").count() == 0


def test_a_click_on_an_attention_shows_its_heads(studio: Open, checkpoint: Path) -> None:
    """Of the sentence that was typed: a map for each head, layers to choose, and the weights."""
    page = studio(checkpoint)
    page.click("[role=tab] >> text=Attention")
    page.wait_for_selector("[role=alert] >> text=type a sentence", timeout=60_000)
    page.fill("[aria-label=sentence]", "sun moon")
    page.press("[aria-label=sentence]", "Enter")
    page.wait_for_selector(".large svg", timeout=60_000)
    page.click(NODE)
    page.wait_for_selector(".layers b >> text=decoder.0.cross_attention")
    spec = json.loads((checkpoint / "spec.json").read_text())
    assert page.locator("[aria-label=layers] button").count() == spec["nodes"]["decoder"]["repeat"]
    heads = page.locator(".map").count()
    assert page.locator(".map").last.inner_text() == "mean"
    assert heads > 2
    page.focus(".large svg")
    page.keyboard.press("ArrowDown")
    page.wait_for_selector(".large p >> text=reads")
    first = page.inner_text(".large p")
    assert 0 <= float(first.rpartition(":")[2]) <= 1
    page.keyboard.press("ArrowRight")
    page.wait_for_function("old => document.querySelector('.large p').innerText !== old", arg=first)
    before = page.get_attribute(".large image", "href")
    page.click("[aria-label='dark mode']")
    page.wait_for_function(
        "old => document.querySelector('.large image').getAttribute('href') !== old", arg=before
    )
    page.click('[data-id="node/head"]')
    assert "decoder.0.cross_attention" in page.inner_text(".layers b")


def test_a_checkpoint_is_only_looked_at(
    studio: Open, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing edits its text; a copy of it is saved elsewhere, and edited there."""
    monkeypatch.chdir(tmp_path)
    page = studio(checkpoint / "spec.json")
    before = (checkpoint / "spec.json").read_text()
    page.evaluate("weftEditor.focus()")
    page.keyboard.type("x")
    assert page.evaluate("weftEditor.state.doc.toString()") == before
    for name in ("Save", "Format", "↶"):
        assert page.locator(f"button:text-is('{name}')").count() == 0
    page.click(NODE)
    page.wait_for_selector(".inspector")
    assert page.locator(".acts >> text=Swap").count() == 0
    page.click("text=Save as…")
    page.wait_for_selector("dialog pre")
    page.fill("dialog [type=text]", "copied")
    page.wait_for_selector("dialog pre >> text=copied")
    page.click("dialog .main")
    page.wait_for_selector(".bar .name >> text='copied'")
    page.wait_for_selector(".acts >> text=Swap >> nth=0")
    assert (tmp_path / "copied.json").is_file()
    assert (checkpoint / "spec.json").read_text() == before
