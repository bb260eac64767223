"""Journeys of a user through the studio, in a browser."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from weft.specs.reader import SHIPPED

TEXT = (SHIPPED / "models" / "transformer-base.json").read_text()
ATTENTION = '[data-id="node/encoder.*.self_attention"]'
Open = Callable[..., Any]


def text_of(page: Any) -> str:
    """Return the text in the editor."""
    return str(page.evaluate("weftEditor.state.doc.toString()"))


def replace(page: Any, old: str, new: str) -> None:
    """Type over the first place of a text."""
    start = text_of(page).index(old)
    page.evaluate(
        "([from, to, insert]) => weftEditor.dispatch({changes: {from, to, insert},"
        " selection: {anchor: from}, scrollIntoView: true})",
        [start, start + len(old), new],
    )


def count(page: Any, selector: str, number: int) -> None:
    """Wait until there is a number of elements."""
    page.wait_for_function(
        "([s, n]) => document.querySelectorAll(s).length === n", arg=[selector, number]
    )


def test_the_command_opens_a_shipped_spec(page: Any, tmp_path: Path) -> None:
    """The address that the command prints shows the drawing; its text cannot be saved in place."""
    command = [sys.executable, "-m", "weft", "studio", "transformer-tiny", "--no-browser"]
    with subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        address = next(line for line in process.stdout if "http" in line).split()[-1]
        page.goto(address)
        page.wait_for_selector(ATTENTION)
        assert "#" not in page.url  # the token is not in the history
        page.get_by_text("Save", exact=True).click()
        page.wait_for_selector("dialog[aria-label='Save as']")
        process.terminate()


def test_frames_fold_and_unfold(studio: Open, file: Path) -> None:
    """A repeat is one box, drawn once, or six copies."""
    page = studio(file)
    page.click('[data-fold="fold encoder"]')
    page.wait_for_selector('[data-id="node/encoder"]')
    count(page, ATTENTION, 0)
    page.click('[data-fold="unfold encoder"]')
    page.wait_for_selector(ATTENTION)
    page.click('[data-fold="draw every copy of encoder"]')
    count(page, '[data-id^="node/encoder."][data-id$=".self_attention"]', 6)


def test_search_finds_nodes_and_fillings(studio: Open, file: Path) -> None:
    """Search counts what it finds, and Enter selects it."""
    page = studio(file)
    page.fill("[type=search]", "attention")
    assert page.inner_text(".count") == "1 of 3"
    page.press("[type=search]", "Enter")
    page.wait_for_selector(".inspector >> text=encoder.*.self_attention")
    page.fill("[type=search]", "no such thing")
    assert page.inner_text(".count") == "nothing"


def test_hover_shows_types_and_costs(studio: Open, file: Path) -> None:
    """The card of the head has its type, its shape at the sizes and its parameters."""
    page = studio(file)
    page.fill("[aria-label='size of T']", "64")
    page.press("[aria-label='size of T']", "Enter")
    page.wait_for_selector(".head >> text=T=64")
    page.hover('[data-id="node/head"]')
    card = page.inner_text(".hover")
    assert "f[B T 37000] = [1, 64, 37000]" in card
    assert "18,944,000" in card


def test_a_mistake_is_marked_and_mended(studio: Open, file: Path) -> None:
    """A wrong name removes what depends on it; the fix of the finding draws it again."""
    page = studio(file)
    replace(page, "target_position.y", "target_positio.y")
    page.wait_for_selector(".finding >> text=target_positio")
    page.wait_for_selector(".cm-lintRange-error")
    page.wait_for_selector(".partial >> text=without decoder, head")
    count(page, '[data-id="node/decoder.*.cross_attention"]', 0)
    page.click(".finding >> text=Fix")
    page.wait_for_selector('[data-id="node/decoder.*.cross_attention"]')
    assert text_of(page) == TEXT


def test_a_fix_of_an_older_text_is_not_applied(studio: Open, file: Path) -> None:
    """Its places are those of the text that the finding is about."""
    page = studio(file)
    replace(page, "target_position.y", "target_positio.y")
    page.wait_for_selector(".finding >> text=Fix")
    wrong = text_of(page)
    # In one task of the browser, before the checker is asked about the new text.
    page.evaluate(
        "() => { weftEditor.dispatch({changes: {from: 0, insert: '// a comment\\n'}});"
        " [...document.querySelectorAll('.finding button')]"
        ".find((one) => one.textContent.startsWith('Fix')).click(); }"
    )
    assert text_of(page) == "// a comment\n" + wrong

    page.wait_for_timeout(300)
    page.click(".finding >> text=Fix")
    assert text_of(page) == "// a comment\n" + TEXT


def test_text_that_is_typed_during_an_edit_is_kept(studio: Open, file: Path) -> None:
    """The edit is made again of the newer text."""
    page = studio(file)
    asked: list[Any] = []

    def slow(route: Any) -> None:
        if not asked:  # the first request is answered after the user has typed
            replace(page, '"dropout": 0.1', '"dropout": 0.2')
        asked.append(route)
        route.continue_()

    page.route("**/api/edit", slow)
    page.click('[data-id="node/source_position"]')
    page.click("text=Remove >> nth=0")
    page.wait_for_function("() => !weftEditor.state.doc.toString().includes('source_position')")

    assert '"dropout": 0.2' in text_of(page)
    assert len(asked) == 2


def test_a_block_is_swapped_by_menu(studio: Open, file: Path) -> None:
    """The menu lists what fits with its costs, and picking changes only this block."""
    page = studio(file)
    page.click('[data-id="node/encoder.*.feed_forward"]')
    page.click("[data-act=swap]")
    page.wait_for_selector(".choice")
    page.fill("dialog [type=search]", "gated_feed_forward")
    assert "+6.3M parameters" in page.inner_text(".choice .change")
    page.click(".choice .pick")
    page.wait_for_selector("svg >> text=gated")
    assert text_of(page).count("gated_feed_forward@1") == 1
    assert len(text_of(page).splitlines()) == len(TEXT.splitlines())


def test_what_does_not_fit_has_a_reason(studio: Open, file: Path) -> None:
    """A block that does not fit cannot be picked, and says why."""
    page = studio(file)
    page.click('[data-id="node/head"]')
    page.click("[data-act=swap]")
    page.wait_for_selector(".choice")
    page.fill("dialog [type=search]", "layer_norm@1")
    assert "f[B T 37000] is read" in page.inner_text(".choice .wrong")
    assert page.locator(".choice .pick").first.is_disabled()


def test_params_copies_and_slots_are_set(studio: Open, file: Path) -> None:
    """Inputs of the inspector write params, copies and fillings of slots."""
    page = studio(file)
    page.click(ATTENTION)
    page.fill('[data-param="encoder.*.self_attention/f kv_heads"]', "2")
    page.press('[data-param="encoder.*.self_attention/f kv_heads"]', "Enter")
    page.wait_for_selector("svg >> text=2 key-value heads")
    page.fill(".inspector [type=number]", "3")
    page.press(".inspector [type=number]", "Enter")
    page.wait_for_selector("svg >> text=× 3")
    page.click('[data-slot="encoder.*.self_attention/f/position"]')
    page.click(".choice >> text=rotary@1")
    page.wait_for_selector("svg >> text=rotary")
    assert json.loads(text_of(page))["nodes"]["encoder"]["repeat"] == 3


def test_weights_are_tied(studio: Open, tmp_path: Path) -> None:
    """Weights of the same shape can be tied."""
    file = tmp_path / "untied.json"
    value = json.loads(TEXT)
    del value["tie"]
    file.write_text(json.dumps(value, indent=2))
    page = studio(file)
    page.click('[data-id="node/source_embedding"]')
    page.select_option("[data-act=tie]", label="source_embedding.weight = target_embedding.weight")
    page.wait_for_selector("svg >> text=shared weight")
    assert json.loads(text_of(page))["tie"] == [
        ["source_embedding.weight", "target_embedding.weight"]
    ]


def test_blocks_are_inserted_wired_and_removed(studio: Open, file: Path) -> None:
    """A block from the palette stands in the wire, and removing it gives the wire back."""
    page = studio(file)
    page.click('[data-id="node/head"]')
    page.click("text=Insert before…")
    page.click(".choice >> text=layer_norm@1")
    page.wait_for_selector('[data-id="node/layer_norm"]')
    page.click('[data-id="node/layer_norm"]')
    page.click(".acts >> text=Remove")
    page.wait_for_selector('[data-id="node/layer_norm"]', state="detached")
    assert json.loads(text_of(page)) == json.loads(TEXT)


def test_two_specs_are_compared(studio: Open, file: Path) -> None:
    """The comparison lists changes, and its slider moves the border of the drawings."""
    page = studio(file)
    page.click("text=Compare…")
    page.select_option("dialog select", "transformer-gqa")
    page.wait_for_selector(".changes >> text=kv_heads")
    assert page.locator(".changes li").count() == 3
    page.fill("dialog [type=range]", "100")
    assert "left: 0%" in (page.get_attribute(".both .line", "style") or "")


def test_a_variant_is_saved_and_opened(studio: Open, file: Path) -> None:
    """The smallest variant is shown, written beside the file, and edited from then on."""
    page = studio(file)
    replace(page, '"layers": 6', '"layers": 4')
    page.wait_for_selector("svg >> text=× 4 >> nth=0")
    page.click("text=Save as…")
    page.fill("dialog [type=text]", "shallow")
    page.wait_for_selector("dialog pre >> text=layers")
    page.click("dialog .main")
    page.wait_for_selector(".note-bar >> text=shallow.json")
    made = json.loads((file.parent / "shallow.json").read_text())
    assert made["params"] == {"layers": 4}
    assert made["extends"] == "mine.json"
    assert file.read_text() == TEXT
    page.wait_for_selector(".bar .name >> text='shallow'")
    replace(page, '"layers": 4', '"layers": 3')
    page.wait_for_selector("svg >> text=× 3 >> nth=0")
    page.click("button:text-is('Save')")
    page.wait_for_selector(".note-bar >> text='saved'")
    assert '"layers": 3' in (file.parent / "shallow.json").read_text()


def test_a_hundred_edits_are_undone(studio: Open, file: Path) -> None:
    """Undo gives the same bytes back, after clicks and typing."""
    page = studio(file)
    page.click(ATTENTION)
    field = '[data-param="encoder.*.self_attention/f kv_heads"]'
    for number in (2, 4, 2):
        page.fill(field, str(number))
        page.press(field, "Enter")
        page.wait_for_function(
            'n => weftEditor.state.doc.toString().includes(`"kv_heads": ${n}`)', arg=number
        )
        page.wait_for_selector(f"svg >> text={number} key-value heads")
    page.evaluate(
        "() => { for (let turn = 0; turn < 97; turn++) weftEditor.dispatch("
        "{changes: {from: (turn * 37) % 900, insert: '?'}, userEvent: 'paste'}); }"
    )
    page.evaluate(
        "() => { for (let turn = 0; turn < 100; turn++)"
        " document.querySelector('[aria-label=undo]').click(); }"
    )
    assert text_of(page) == TEXT


def test_a_change_from_outside_is_offered(studio: Open, file: Path) -> None:
    """Another text on disk is offered, and a save does not overwrite it."""
    page = studio(file)
    replace(page, '"dropout": 0.1', '"dropout": 0.2')
    file.write_text(TEXT.replace('"layers": 6', '"layers": 5'))
    page.click("text=Save >> nth=0")
    page.wait_for_selector(".banner >> text=changed on disk")
    assert '"layers": 5' in file.read_text()
    page.click("text=Take the text on disk")
    page.wait_for_selector("svg >> text=× 5 >> nth=0")
    assert text_of(page) == file.read_text()


def test_hostile_names_are_texts(studio: Open, tmp_path: Path) -> None:
    """Markup in names, docs and params is shown, and runs nothing."""
    hostile = "<img src=x onerror=document.title='pwned'>"
    value = json.loads(TEXT)
    value["doc"] = value["name"] = hostile
    value["nodes"][hostile] = value["nodes"]["head"]
    file = tmp_path / "x.json"
    file.write_text(json.dumps(value))
    page = studio(file)
    page.click(ATTENTION)
    page.hover('[data-id="node/decoder.*.feed_forward"]')
    assert page.locator("img").count() == 0
    assert page.title() != "pwned"
    assert hostile in page.inner_text("#root")


def test_a_wrong_token_shows_nothing(studio: Open, file: Path) -> None:
    """Without the token, the page says so; another origin gets no answer."""
    page = studio(file)
    address = page.url
    page.evaluate("sessionStorage.clear()")
    page.goto("about:blank")
    page.goto(f"{address}#wrong")
    page.wait_for_selector("text=the token is wrong")
    assert page.locator("svg").count() == 0


def test_dark_mode_and_keyboard_only(studio: Open, file: Path) -> None:
    """Keys select along the wires, fold, change the theme and open the menu."""
    page = studio(file)
    page.focus(".canvas")
    dark = page.get_attribute("html", "data-theme")
    page.keyboard.press("d")
    page.wait_for_function("old => document.documentElement.dataset.theme !== old", arg=dark)
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    chosen = page.get_attribute('[aria-pressed="true"].box', "data-id")
    assert chosen == "node/encoder.*.self_attention"
    page.keyboard.press("Space")
    page.wait_for_selector('[data-id="node/encoder"]')
    count(page, ATTENTION, 0)  # it fades
    page.keyboard.press("f")
    page.wait_for_selector(ATTENTION)
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog .choice")
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.type") == "search"


def test_passes_and_code_are_shown(studio: Open, file: Path) -> None:
    """The model after a pass is drawn, and the code of a node is marked."""
    page = studio(file)
    page.select_option("[aria-label='compile pass']", "unpad")
    page.wait_for_selector(".inspector, .head")
    page.select_option("[aria-label='compile pass']", "")
    page.click(ATTENTION)
    page.click(".acts >> text=Code")
    page.wait_for_selector("dialog mark", timeout=60_000)
    assert "self_attention" in page.inner_text("dialog mark >> nth=0")


def test_completion_offers_values_of_the_right_type(studio: Open, file: Path) -> None:
    """In a wire, the values that fit the port are offered."""
    page = studio(file)
    replace(page, '"x": "cross_attention.y"', '"x": ""')
    start = text_of(page).index('"x": ""') + 6
    page.evaluate(
        "at => { weftEditor.dispatch({selection: {anchor: at}}); weftEditor.focus(); }", start
    )
    page.keyboard.press("Control+Space")
    page.wait_for_selector(".cm-tooltip-autocomplete >> text=cross_attention.y")
    page.click(".cm-tooltip-autocomplete >> text=cross_attention.y")
    page.wait_for_selector(".findings.good")
    assert text_of(page) == TEXT


def test_a_wire_is_drawn_by_drag(studio: Open, file: Path) -> None:
    """Only ports that fit light up; Escape draws nothing, and a drop edits the text."""
    page = studio(file)
    outlet = "[data-outlet='target_position y']"
    page.hover('[data-id="node/target_position"]')
    page.hover(outlet)
    page.mouse.down()
    page.mouse.move(800, 300)
    page.wait_for_selector("[data-inlet='decoder x']")
    lit = [each.get_attribute("data-inlet") for each in page.locator("[data-inlet]").all()]
    assert sorted(lit) == ["decoder x", "head x"]
    page.keyboard.press("Escape")
    page.wait_for_selector(".thread", state="detached")
    page.mouse.up()
    assert text_of(page) == TEXT
    page.hover('[data-id="node/target_embedding"]')
    page.hover(outlet.replace("position", "embedding"))
    page.mouse.down()
    page.wait_for_selector("[data-inlet='head x']")
    place = page.locator("[data-inlet='head x'] circle").bounding_box()
    page.mouse.move(place["x"] + 15, place["y"] + 10, steps=3)
    page.mouse.up()
    page.wait_for_selector(".finding >> text=nothing reads node")
    assert json.loads(text_of(page))["nodes"]["head"]["in"] == {"x": "target_embedding.y"}
    # The other node is drawn although nothing reads it, and its frame has the wire back.
    page.wait_for_selector("svg >> text='decoder '")
    page.locator("text='× 6'").last.hover()
    page.hover("[data-outlet='decoder x']")
    page.mouse.down()
    page.wait_for_selector("[data-inlet='head x']")
    place = page.locator("[data-inlet='head x'] circle").bounding_box()
    page.mouse.move(place["x"] + 5, place["y"] + 5, steps=3)
    page.mouse.up()
    page.wait_for_selector(".findings.good")
    assert text_of(page) == TEXT


def test_a_wire_is_drawn_with_the_keyboard(studio: Open, file: Path) -> None:
    """The same with keys, which are announced."""
    page = studio(file)
    page.click('[data-id="node/decoder.*.self_attention"]')
    page.focus(".canvas")
    page.keyboard.press("w")
    page.wait_for_selector(".said >> text=cross_attention, 1 of 2")
    page.keyboard.press("Escape")
    page.wait_for_selector(".thread", state="detached")
    page.keyboard.press("w")
    page.wait_for_selector(".said >> text=cross_attention, 1 of 2")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(".said >> text=feed_forward, 2 of 2")
    page.keyboard.press("Enter")
    page.wait_for_selector(".finding >> text=nothing reads node")
    nodes = json.loads(text_of(page))["blocks"]["decoder_layer"]["nodes"]
    assert nodes["feed_forward"]["in"] == {"x": "self_attention.y"}


def test_nodes_are_colored_by_measured_time(studio: Open, file: Path) -> None:
    """The times belong to a text at some sizes; sizes beyond the limit are refused."""
    page = studio(file)
    assert page.locator("option[value=time]").count() == 0
    page.click("button:text-is('measure')")
    page.wait_for_selector(".legend[aria-label='heat: time']", timeout=60_000)
    page.hover('[data-id="node/head"]')
    assert " ms" in page.inner_text(".hover tr:has-text('time')")
    page.fill("[aria-label='size of T']", "100000")
    page.press("[aria-label='size of T']", "Enter")
    page.wait_for_selector(".legend", state="detached")
    page.click("button:text-is('measure')")
    page.wait_for_selector(".note-bar.wrong >> text=the studio measures up to")


def test_the_drawing_does_not_wait_for_the_code_of_the_editor(studio: Any) -> None:
    """Most of the script is the editor; what needs it cannot be clicked before."""
    page, held = studio("transformer-tiny"), []
    page.route("**/studio-editor.js", lambda route: held.append(route))  # noqa: PLW0108
    page.reload()
    page.wait_for_selector("svg .box")
    assert page.evaluate("typeof weftEditor") == "undefined"
    assert page.evaluate("document.querySelector('.bar.top').inert")
    while not held:
        page.wait_for_timeout(20)
    held.pop().continue_()
    page.wait_for_function("() => 'weftEditor' in window")
    page.wait_for_selector(".bar.top:not([inert])")
    assert '"transformer-tiny"' in page.evaluate("weftEditor.state.doc.toString()")
