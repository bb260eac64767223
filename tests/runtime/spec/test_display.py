"""What notebooks and the prompt show: short texts, pictures, and escaped HTML."""

from __future__ import annotations

import json
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
import weft
from weft.graphs.draw.scene import scene
from weft.runtime.spec.check import findings_html, frame_html, note_html, text_html

HOSTILE = "<script>alert('x')</script>"


def test_specs_have_a_short_repr() -> None:
    """Name, file, overrides, and the number of parameters or of errors."""
    right, wrong = weft.load("transformer-base", layers=4), weft.load("transformer-base", heads=7)

    assert repr(right).startswith("<Spec transformer-base from ")
    assert repr(right).endswith("transformer-base.json' layers=4: 48,369,664 parameters>")
    assert repr(wrong).endswith("heads=7: 1 error>")
    assert len(repr(right.graph())) < 300


class Elements(HTMLParser):
    """The start tags of a text, with their attributes."""

    def __init__(self, text: str) -> None:
        """Read a text."""
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep a start tag."""
        self.found.append((tag, dict(attrs)))


def test_a_drawing_without_a_file_is_a_page_in_a_frame() -> None:
    """The page has the facts of the model, and its frame cannot read the notebook around it."""
    drawing = weft.draw("transformer-tiny")
    shown = drawing._repr_html_()

    [(tag, given)] = Elements(shown).found
    assert tag == "iframe"
    assert given["srcdoc"] == drawing.page
    assert given["sandbox"] == "allow-scripts allow-downloads"
    assert "\n" not in shown
    assert {tag for tag, _ in Elements(drawing.page).found} >= {"script", "style", "meta"}
    assert not any({"src", "href"} & given.keys() for _, given in Elements(drawing.page).found)
    data = drawing.page.partition('id="scene">')[2].partition("</script>")[0]
    facts = scene(weft.load("transformer-tiny").graph())["facts"]
    assert json.loads(data)["facts"] == json.loads(json.dumps(facts))
    assert repr(drawing).startswith("<Drawing transformer-tiny: ")


def test_a_page_in_a_frame_takes_the_settings_of_a_page() -> None:
    """Others are refused with the reason, as for a file."""
    with pytest.raises(weft.InputError, match="form has no effect on a page"):
        weft.draw("transformer-tiny", form="expanded")  # type: ignore[call-overload]
    with pytest.raises(weft.InputError, match="draws a complete model"):
        weft.draw("transformer-tiny", node="encoder")


def test_a_drawing_escapes_the_texts_of_a_spec() -> None:
    """A name ends neither the attribute nor the script."""
    page = f'<p title="x">{HOSTILE} &amp; </iframe></p>'
    shown = frame_html(page, f'"{HOSTILE}')

    [(_, given)] = Elements(shown).found
    assert given["srcdoc"] == page
    assert given["title"] == f'"{HOSTILE}'


def test_findings_are_a_list_with_a_short_repr() -> None:
    """`weft.check(spec).errors == []` is how scripts ask whether a spec is valid."""
    none, some = weft.check("bert"), weft.check(weft.load("transformer-base", heads=7))

    assert none == []
    assert repr(none) == "[]"
    assert repr(some) == "[<Finding E05 at /require/0: 'd_model % heads == 0' does not hold>]"
    assert "no findings" in none._repr_html_()
    assert some.render() == some[0].render()


def test_html_escapes_the_texts_of_a_spec(tmp_path: Path) -> None:
    """A spec is untrusted, and a notebook runs scripts."""
    file = tmp_path / "hostile.json"
    file.write_text(json.dumps({"format": 1, "name": "x", HOSTILE: HOSTILE}))

    shown = weft.check(file)._repr_html_()

    assert "&lt;script&gt;" in shown
    assert "<script" not in shown


@pytest.mark.parametrize("shown", [note_html, text_html])
def test_html_escapes_notes_and_lines(shown: Callable[[str], str]) -> None:
    """They are reasons why there is no picture, and generated code."""
    assert "<script" not in shown(HOSTILE)


def test_html_escapes_each_part_of_a_finding() -> None:
    """Evidence quotes the file, and a help names what is near."""
    finding = weft.Finding(
        code=HOSTILE, at="/x", problem=HOSTILE, evidence=(HOSTILE,), help=HOSTILE, source=HOSTILE
    )

    shown = findings_html([finding])

    assert "<script" not in shown
    assert shown.count("&lt;script&gt;") == 5


def test_a_spec_shows_its_picture() -> None:
    """As SVG, without an XML declaration, which HTML does not allow."""
    pytest.importorskip("graphviz")
    bundle = weft.load("transformer-tiny")._repr_mimebundle_()

    if "image/svg+xml" not in bundle:
        pytest.skip("graphviz's dot is missing")
    assert bundle["image/svg+xml"].startswith("<svg")
    assert bundle["text/plain"].startswith("<Spec transformer-tiny")


def test_a_spec_with_errors_shows_them() -> None:
    """Never an exception."""
    bundle = weft.load("transformer-base", heads=7)._repr_mimebundle_()

    assert "E05" in bundle["text/html"]
    assert "image/svg+xml" not in bundle


def test_without_dot_a_spec_and_a_diff_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphviz is an optional program."""
    monkeypatch.setenv("PATH", "")
    found = weft.diff("transformer-base", "transformer-prenorm")

    assert "is not installed" in weft.load("bert")._repr_mimebundle_()["text/html"]
    assert "is not installed" in found._repr_html_()
    assert "carried over" in found._repr_html_()
    assert repr(found) == "<Diff transformer-base -> transformer-prenorm: 11 changes>"
    assert repr(weft.diff("bert", "bert")) == "<Diff bert -> bert: equal>"


def test_a_diff_shows_picture_and_text() -> None:
    """The picture colors what the text lists."""
    shown = weft.diff("transformer-base", "transformer-prenorm")._repr_html_()

    assert "<svg" in shown or "is not installed" in shown
    assert "<pre" in shown


def test_warnings_look_different_from_errors(tmp_path: Path) -> None:
    """With their level, line and column."""
    path = tmp_path / "child.json"
    patch = {"select": "**[use=sublayer@1]", "set": {"params.order": "pre"}}
    path.write_text(
        json.dumps({"format": 1, "name": "a", "extends": "transformer-tiny", "patch": [patch]})
    )

    found = weft.check(path)

    assert {each.code for each in found} == {"D06"}
    shown = found._repr_html_()
    assert "<b>warning[D06]</b>" in shown
    assert "transformer-base.json:" in shown
    assert "#d1463d" not in shown
