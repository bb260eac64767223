"""Several nodes at once, and new names for nodes, in a browser."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from weft.specs.reader import SHIPPED

TEXT = (SHIPPED / "models" / "transformer-base.json").read_text()
ATTENTION = ("encoder.*.self_attention", "decoder.*.self_attention", "decoder.*.cross_attention")
Open = Callable[..., Any]


def text_of(page: Any) -> str:
    """Return the text in the editor."""
    return str(page.evaluate("weftEditor.state.doc.toString()"))


def wait_for(page: Any, part: str) -> None:
    """Wait until the text has a part."""
    page.wait_for_function("part => weftEditor.state.doc.toString().includes(part)", arg=part)


def picked(page: Any) -> set[str]:
    """Return the nodes that the panel lists."""
    page.wait_for_selector("[aria-label='selected nodes']")
    return {text.split(" ")[0] for text in page.locator(".picked li").all_inner_texts()}


def test_a_param_of_several_nodes_is_one_edit(studio: Open, file: Path) -> None:
    """Three attentions by Shift and a click; one undo takes it back."""
    page = studio(file)
    page.click(f'[data-id="node/{ATTENTION[0]}"]')
    for node in ATTENTION[1:]:
        page.click(f'[data-id="node/{node}"]', modifiers=["Shift"])
    assert picked(page) == {*ATTENTION}
    field = "[data-param='several/f kv_heads']"
    page.fill(field, "2")
    page.press(field, "Enter")
    wait_for(page, '"kv_heads": 2')
    assert text_of(page).count('"kv_heads": 2') == 3
    page.wait_for_selector(f"{field} >> nth=0")
    assert picked(page) == {*ATTENTION}  # they stay selected for the next param
    page.click("[aria-label=undo]")
    assert text_of(page) == TEXT
    page.click(f'[data-id="node/{ATTENTION[2]}"]', modifiers=["Shift"])
    assert picked(page) == {*ATTENTION[:2]}


def test_values_that_differ_are_mixed(studio: Open, file: Path) -> None:
    """In a list and in a field; causal is mixed from the start."""
    page = studio(file)
    page.click(f'[data-id="node/{ATTENTION[0]}"]')
    page.select_option(f"[data-param='{ATTENTION[0]} order']", "pre")
    wait_for(page, '"order": "pre"')
    page.click("text=All 5 sublayer@1")
    assert len(picked(page)) == 5
    order = "[data-param='several order']"
    page.wait_for_selector(f"{order} option:text-is('mixed')", state="attached")
    assert page.input_value(order) == ""
    page.select_option(order, "sandwich")
    wait_for(page, "sandwich")
    assert text_of(page).count('"order": "sandwich"') == 5
    page.wait_for_function("s => document.querySelector(s)?.value === 'sandwich'", arg=order)
    page.keyboard.press("Escape")
    page.click(f'[data-id="node/{ATTENTION[0]}"]')
    page.click("text=All 3 sublayer@1 + attention@1")
    causal = page.locator("[data-param='several/f causal']")
    assert causal.input_value() == ""
    # Feed-forward networks and attention have a dropout in common, written as an expression.
    page.click('[data-id="node/encoder.*.feed_forward"]', modifiers=["Shift"])
    page.wait_for_selector("[data-param='several/f dropout']")
    assert page.locator("[data-param='several/f causal']").count() == 0


def test_several_nodes_are_selected_with_the_keyboard(studio: Open, file: Path) -> None:
    """`s` selects what has the same blocks, and then the same block; Shift and an arrow, one."""
    page = studio(file)
    page.click(f'[data-id="node/{ATTENTION[2]}"]')
    page.focus(".canvas")
    page.keyboard.press("s")
    assert picked(page) == {*ATTENTION}
    page.keyboard.press("s")
    page.wait_for_selector(".inspector >> text=5 nodes")
    page.keyboard.press("Escape")
    page.wait_for_selector(".inspector", state="detached")
    page.click(f'[data-id="node/{ATTENTION[2]}"]')
    page.focus(".canvas")
    page.keyboard.press("Shift+ArrowUp")
    assert picked(page) == {ATTENTION[2], "decoder.*.feed_forward"}
    page.keyboard.press("ArrowUp")
    page.wait_for_selector("[aria-label='selected nodes']", state="detached")


def test_a_rectangle_selects_the_nodes_inside(studio: Open, file: Path) -> None:
    """Drawn with Shift; without, the mouse moves the drawing."""
    page = studio(file)
    boxes = [page.locator(f'[data-id="node/{node}"]').bounding_box() for node in ATTENTION[1:]]
    left, top = (min(box[key] for box in boxes) - 6 for key in ("x", "y"))
    sides = (("x", "width"), ("y", "height"))
    right, bottom = (max(box[at] + box[size] for box in boxes) + 6 for at, size in sides)
    page.keyboard.down("Shift")
    page.mouse.move(left, top)
    page.mouse.down()
    page.mouse.move(right, bottom, steps=4)
    page.wait_for_selector(".marquee")
    page.mouse.up()
    page.keyboard.up("Shift")
    assert {*ATTENTION[1:]} <= picked(page)
    assert "head" not in picked(page)


def test_a_node_is_renamed_in_the_panel(studio: Open, file: Path) -> None:
    """An inserted norm gets a name of its own, with F2; its wires follow and it stays selected."""
    page = studio(file)
    page.click('[data-id="node/head"]')
    page.click("text=Insert before")
    page.fill("dialog [type=search]", "layer norm")
    page.wait_for_selector(".choice .pick:has-text('layer_norm@1')")
    assert page.locator("dialog .choice").count() < 5
    page.fill("dialog [type=search]", "layer_norm")
    page.press("dialog [type=search]", "Enter")
    page.click('[data-id="node/layer_norm"]')
    page.focus(".canvas")
    page.keyboard.press("F2")
    page.keyboard.type("decoder_norm")
    page.keyboard.press("Enter")
    page.wait_for_selector('[data-id="node/decoder_norm"][aria-pressed="true"]')
    nodes = json.loads(text_of(page))["nodes"]
    assert nodes["head"]["in"] == {"x": "decoder_norm.y"}
    assert "layer_norm" not in nodes
    page.fill("[data-act=name]", "head")
    page.press("[data-act=name]", "Enter")
    page.wait_for_selector(".note-bar.wrong >> text=the name 'head' is taken")
    assert page.input_value("[data-act=name]") == "decoder_norm"
    # A folded repeat stays folded under its new name.
    page.click('[data-fold="fold encoder"]')
    page.click('[data-id="node/encoder"]')
    page.fill("[data-act=name]", "reader")
    page.press("[data-act=name]", "Enter")
    page.wait_for_selector('[data-id="node/reader"]')
    assert '"memory": "reader.x"' in text_of(page)


def test_clicks_edit_around_a_mistake(studio: Open, file: Path) -> None:
    """A node of a template that nothing reads stays in the drawing, and others are edited."""
    page = studio(file)
    start = text_of(page).index('"cross_attention.y"')
    page.evaluate(
        "([from, to, insert]) => weftEditor.dispatch({changes: {from, to, insert}})",
        [start, start + len('"cross_attention.y"'), '"self_attention.y"'],
    )
    page.wait_for_selector(".finding >> text=nothing reads node 'cross_attention'")
    page.click('[data-id="node/decoder.*.cross_attention"]')
    page.select_option("[data-param='decoder.*.cross_attention order']", "pre")
    wait_for(page, '"order": "pre"')
    page.click('[data-id="node/encoder.*.feed_forward"]')
    page.wait_for_selector("[data-act=swap]")


def test_the_fix_of_a_missing_norm_is_a_button(studio: Open, file: Path) -> None:
    """It inserts the norm, and the warning is gone."""
    page = studio(file)
    page.click('[data-id="node/encoder.*.self_attention"]')
    page.click("text=All 5 sublayer@1")
    page.select_option("[data-param='several order']", "pre")
    page.wait_for_selector(".finding >> text=no norm follows the pre-norm stack 'decoder'")
    for stack in ("encoder", "decoder"):
        page.click(f".finding:has-text(\"stack '{stack}'\") >> text=Fix:")
        page.wait_for_selector(f'[data-id="node/{stack}_norm"]')
    page.wait_for_selector(".findings.good")
