"""Journeys into a layer: what is inserted, wired and saved there, and where the page stays."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import weft

from .test_journeys import ATTENTION, TEXT, text_of

FEED_FORWARD = '[data-id="node/encoder.*.feed_forward"]'
Open = Callable[..., Any]


def insert(page: Any, node: str, words: str, name: str) -> None:
    """Insert a block before a node of the encoder with the mouse and the filter."""
    page.click(f'[data-id="node/encoder.*.{node}"]')
    page.click("text=Insert before…")
    page.wait_for_selector(".choice")
    page.fill("dialog [type=search]", words)
    page.press("dialog [type=search]", "Enter")
    page.wait_for_selector(f'[data-id="node/encoder.*.{name}"]')


def test_the_page_does_not_scroll(studio: Open, file: Path) -> None:
    """Tooltips of the text lie in a container of the page, which has no height."""
    page = studio(file)
    page.evaluate("() => { weftEditor.dispatch({selection: {anchor: 4}}); weftEditor.focus(); }")
    page.keyboard.press("Control+Space")
    page.wait_for_selector(".cm-tooltip-autocomplete")
    heights = "[document.documentElement.scrollHeight, document.body.scrollHeight, innerHeight]"
    assert page.evaluate(heights) == [900, 900, 900]
    page.mouse.move(700, 880)
    page.mouse.wheel(0, 500)
    assert page.evaluate("scrollY") == 0


def test_tab_leaves_the_text(studio: Open, file: Path) -> None:
    """With the keyboard alone, everything behind the text can be reached."""
    page = studio(file)
    page.evaluate("weftEditor.focus()")
    page.keyboard.press("Tab")
    assert not page.evaluate("weftEditor.hasFocus")
    assert text_of(page) == TEXT
    page.keyboard.press("Shift+Tab")
    assert page.evaluate("weftEditor.hasFocus")


def test_blocks_inserted_in_a_layer_are_saved_as_patches(studio: Open, file: Path) -> None:
    """The variant is short and valid, and is open afterwards, so that it can be edited on."""
    page = studio(file)
    insert(page, "self_attention", "rms", "rms_norm")
    insert(page, "feed_forward", "gated feed", "gated_feed_forward")
    page.click("text=Save as…")
    page.fill("dialog [type=text]", "gated")
    page.wait_for_selector("dialog pre >> text=gated_feed_forward")
    page.click("dialog .main")
    page.wait_for_selector(".bar .name >> text='gated'")

    path = file.parent / "gated.json"
    value = json.loads(path.read_text())
    assert [next(iter(patch)) for patch in value["patch"]] == ["select", "select"]
    assert text_of(page) == path.read_text()
    assert weft.check(path) == []
    # Per layer: a norm of 512, and three matrices and biases between 512 and 2048.
    more = 512 + 3 * 512 * 2048 + 2 * 2048 + 512
    sizes = [weft.load(name).graph().parameters() for name in (path, file)]
    assert sizes[0] - sizes[1] == 6 * more

    page.wait_for_selector(".findings.good")
    page.click('[data-id="node/encoder.*.rms_norm"]')
    page.click(".acts >> text=Remove")
    page.wait_for_selector('[data-id="node/encoder.*.rms_norm"]', state="detached")
    page.click("button:text-is('Save')")
    page.wait_for_selector(".note-bar >> text='saved'")
    assert weft.load(path).graph().parameters() - sizes[1] == 6 * (more - 512)


def test_a_block_is_put_after_a_node_and_into_a_sublayer(studio: Open, file: Path) -> None:
    """The end of a layer is no wire of a node; a residual path is put around what is there."""
    page = studio(file)
    page.click(FEED_FORWARD)
    page.click("text=Insert after…")
    page.wait_for_selector(".choice")
    page.fill("dialog [type=search]", "gated feed")
    page.press("dialog [type=search]", "Enter")
    page.click('[data-id="node/encoder.*.gated_feed_forward"]')
    page.click("[data-act=swap]")
    page.wait_for_selector(".choice")
    page.fill("dialog [type=search]", "sublayer")
    assert "around gated_feed_forward@1" in page.inner_text(".choice >> nth=0")
    page.press("dialog [type=search]", "Enter")
    page.wait_for_function("() => weftEditor.state.doc.toString().split('sublayer@1').length === 7")
    page.wait_for_selector(".findings.good")
    layer = json.loads(text_of(page))["blocks"]["encoder_layer"]
    assert layer["outputs"] == {"x": "gated_feed_forward.y"}
    fill = {"f": {"use": "gated_feed_forward@1", "params": {"d_ff": "=d_ff"}}}
    assert layer["nodes"]["gated_feed_forward"]["fill"] == fill


def test_a_complete_spec_is_saved_under_another_name(studio: Open, file: Path) -> None:
    """It extends nothing."""
    page = studio(file)
    insert(page, "feed_forward", "rms", "rms_norm")
    page.click("text=Save as…")
    page.fill("dialog [type=text]", "whole")
    page.check("dialog [value=complete]")
    page.wait_for_selector("dialog pre >> text=encoder_layer")
    page.click("dialog .main")
    page.wait_for_selector(".bar .name >> text='whole'")
    value = json.loads((file.parent / "whole.json").read_text())
    assert value["name"] == "whole"
    assert "extends" not in value
    assert "rms_norm" in value["blocks"]["encoder_layer"]["nodes"]
    assert file.read_text() == TEXT


def test_a_port_without_a_wire_is_wired_in_the_panel(studio: Open, file: Path) -> None:
    """Inside a layer; an optional port is also left open again."""
    page = studio(file)
    page.click(ATTENTION)
    memory = "[data-wire='encoder.*.self_attention memory']"
    page.select_option(memory, "x")
    page.wait_for_function('() => weftEditor.state.doc.toString().includes(\'"memory": "x"\')')
    page.wait_for_selector(".findings.good")
    page.select_option(memory, "")
    page.wait_for_function('() => !weftEditor.state.doc.toString().includes(\'"memory": "x"\')')
    assert json.loads(text_of(page)) == json.loads(TEXT)
    assert page.is_disabled("[data-wire='encoder.*.self_attention bias']")


def test_a_wire_is_drawn_from_an_input_of_a_layer(studio: Open, file: Path) -> None:
    """It begins at the lower edge of the frame."""
    page = studio(file)
    page.locator("text='encoder layer'").first.hover()
    page.hover("[data-outlet='in encoder.* x']")
    page.mouse.down()
    inlet = "[data-inlet='encoder.*.feed_forward x']"
    page.wait_for_selector(inlet)
    place = page.locator(f"{inlet} circle").bounding_box()
    page.mouse.move(place["x"] + 5, place["y"] + 5, steps=3)
    page.mouse.up()
    page.wait_for_selector(".finding >> text=nothing reads node")
    nodes = json.loads(text_of(page))["blocks"]["encoder_layer"]["nodes"]
    assert nodes["feed_forward"]["in"] == {"x": "x"}


@pytest.mark.parametrize("block", ["linear", "gru"])
def test_a_block_fits_a_slot_with_the_width_of_its_wire(
    studio: Open, file: Path, block: str
) -> None:
    """Its name counts more than texts that contain it, so Enter takes it."""
    page = studio(file)
    page.click(FEED_FORWARD)
    page.click("[data-act=swap]")
    page.wait_for_selector(".choice")
    page.fill("dialog [type=search]", block)
    assert page.inner_text(".choice b >> nth=0") == f"{block}@1"
    page.press("dialog [type=search]", "Enter")
    page.wait_for_function(f"() => weftEditor.state.doc.toString().includes('{block}@1')")
    page.wait_for_selector(".findings.good")
    fill = json.loads(text_of(page))["blocks"]["encoder_layer"]["nodes"]["feed_forward"]["fill"]
    assert "=d_model" in fill["f"]["params"].values()
