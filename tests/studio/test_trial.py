"""A new user builds a variant by mouse, saves it and trains it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import weft
from weft.specs.reader import SHIPPED

SUBLAYERS = (
    "encoder.*.self_attention",
    "encoder.*.feed_forward",
    "decoder.*.self_attention",
    "decoder.*.cross_attention",
    "decoder.*.feed_forward",
)


def _select(page: Any, node: str) -> None:
    page.click(f'[data-id="node/{node}"]')
    page.wait_for_selector(f".inspector >> text={node}")


def _change(page: Any, act: Callable[[], Any]) -> None:
    """Act, and wait until the text has changed and is drawn."""
    before = page.evaluate("weftEditor.state.doc.toString()")
    act()
    page.wait_for_function("old => weftEditor.state.doc.toString() !== old", arg=before)


def _set(page: Any, path: str, param: str, value: str) -> None:
    field = f'[data-param="{path} {param}"]'
    if page.locator(field).evaluate("field => field.tagName") == "SELECT":
        _change(page, lambda: page.select_option(field, value))
    else:
        page.fill(field, value)
        _change(page, lambda: page.press(field, "Enter"))
    page.wait_for_function(
        "([field, value]) => document.querySelector(field)?.value === value", arg=[field, value]
    )


@pytest.mark.timeout(300)
def test_a_pre_norm_rotary_grouped_variant_is_built_by_mouse_and_trains(
    studio: Callable[..., Any], tmp_path: Path
) -> None:
    """The saved file is short, gives the model, and learns."""
    base = tmp_path / "base.json"
    base.write_text((SHIPPED / "models" / "transformer-base.json").read_text())
    page = studio(base)
    page.set_default_timeout(20_000)
    for node in SUBLAYERS:
        _select(page, node)
        _set(page, node, "order", "pre")
        if "attention" in node:
            _set(page, f"{node}/f", "kv_heads", "2")
        if "self" in node:
            page.click(f'[data-slot="{node}/f/position"]')
            page.fill("dialog [type=search]", "rotary")
            _change(page, lambda: page.click(".choice .pick"))
    for side in ("source", "target"):
        _select(page, f"{side}_position")
        _change(page, lambda: page.click(".acts >> text=Remove"))
        page.wait_for_selector(f'[data-id="node/{side}_position"]', state="detached")
    page.wait_for_selector(".finding >> text=no norm follows the pre-norm stack 'encoder'")
    _select(page, "head")
    page.click("text=Insert before")
    _change(page, lambda: page.click(".choice .pick:has-text('layer_norm@1')"))
    page.click('[data-fold="fold decoder"]')
    _select(page, "decoder")
    page.click("text=Insert before")
    page.select_option("dialog select", "memory")
    _change(page, lambda: page.click(".choice .pick:has-text('layer_norm@1')"))
    page.wait_for_selector(".findings.good")
    page.get_by_text("Save as…").click()
    page.fill("dialog input[type=text]", "mine")
    page.wait_for_selector("dialog pre:has-text('mine')")
    page.click("dialog button.main")
    page.wait_for_selector("dialog", state="detached")

    lines = (tmp_path / "mine.json").read_text().splitlines()
    assert len(lines) == 14
    # Removed: none; a quarter of each key and value matrix and bias; 2 norms more.
    attentions, kept = 3 * 6, 512 * 128 + 128
    counts = [weft.load(path).graph().parameters() for path in (base, tmp_path / "mine.json")]
    assert counts[0] - counts[1] == attentions * 2 * (512 * 512 + 512 - kept) - 2 * 1024

    run = json.loads((SHIPPED / "runs" / "demo.json").read_text())
    small = {"d_model": 32, "heads": 4, "d_ff": 64, "layers": 1}
    run["params"]["model"] = {"spec": "mine", "params": small}
    run["data"]["root"] = "corpus"
    run["tokenizers"]["tokenizer"]["vocab_size"] = 60
    run |= {"updates": 4, "compile": "eager"}
    run["schedule"]["pieces"][0]["over"] = 1
    run["evaluate"] = {"every": 4}
    run["checkpoint"]["every"] = 4
    (tmp_path / "run.json").write_text(json.dumps(run))
    _write_corpus(tmp_path / "corpus")
    done = subprocess.run(
        [sys.executable, "-m", "weft", "train", "run.json", "--out", "out"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "averaged" / "weights.safetensors").is_file()


def _write_corpus(folder: Path) -> None:
    """Write pairs of numbers in English and German."""
    folder.mkdir()
    pairs = [("one", "eins"), ("two", "zwei"), ("three", "drei"), ("four", "vier")]
    rows = [(f"{a} {c} {e}", f"{b} {d} {f}") for a, b in pairs for c, d in pairs for e, f in pairs]
    for split, some in (("train", rows[8:]), ("valid", rows[:8]), ("test", rows[:8])):
        for index, side in enumerate(("en", "de")):
            lines = "".join(f"{row[index]}\n" for row in some)
            (folder / f"{split}.{side}").write_text(lines)
