"""`weft lsp`, driven over its protocol as a separate process."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pygls")

from weft.extensions.editor.language.positions import Lines
from weft.specs.reader import SHIPPED

pytestmark = pytest.mark.integration

BASE = SHIPPED / "models" / "transformer-base.json"
TEXT = BASE.read_text()
PATIENCE = 120
"""Seconds after which a test gives up; no test waits for them."""


class Editor:
    """A client of the protocol, with one open document."""

    def __init__(self, folder: Path) -> None:
        """Start the server and open an empty document."""
        command = [sys.executable, "-m", "weft", "lsp"]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=folder)
        self.uri, self.version, self.number = (folder / "mine.json").as_uri(), 1, 0
        self.text = TEXT
        self.shown: list[str] = []
        self.waiting: queue.Queue[dict[str, Any]] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        capabilities: dict[str, Any] = {"general": {"positionEncodings": ["utf-16"]}}
        given = {"processId": None, "rootUri": folder.as_uri(), "capabilities": capabilities}
        self.can = self.ask("initialize", given)["capabilities"]
        self.tell("initialized", {})
        self.tell(
            "textDocument/didOpen",
            {"textDocument": {"uri": self.uri, "languageId": "json", "version": 1, "text": TEXT}},
        )

    def tell(self, method: str, params: Any) -> None:
        """Send a notification."""
        self._send({"method": method, "params": params})

    def ask(self, method: str, params: Any) -> Any:
        """Send a request and return its result; of an error, the message."""
        self.number += 1
        self._send({"id": self.number, "method": method, "params": params})
        answer = self.until(lambda one: one.get("id") == self.number)
        return answer["error"]["message"] if "error" in answer else answer["result"]

    def about(self, method: str, at: str, shift: int = 1, **more: Any) -> Any:
        """Ask about the place `shift` characters into the first occurrence of a text."""
        line, column = Lines(self.text).position(self.text.index(at) + shift)
        place = {"line": line, "character": column}
        document = {"textDocument": {"uri": self.uri}}
        return self.ask(f"textDocument/{method}", {**document, "position": place, **more})

    def write(self, text: str) -> list[dict[str, Any]]:
        """Replace the text and return the findings."""
        self.version += 1
        self.text = text
        changed = {"uri": self.uri, "version": self.version}
        changes = [{"text": text}]
        self.tell("textDocument/didChange", {"textDocument": changed, "contentChanges": changes})
        told = self.until(lambda one: one.get("params", {}).get("version") == self.version)
        return list(told["params"]["diagnostics"])

    def until(self, wanted: Any) -> dict[str, Any]:
        """Return the next message of a kind."""
        while True:
            message = self.waiting.get(timeout=PATIENCE)
            if message.get("method") == "window/showMessage":
                self.shown.append(message["params"]["message"])
            if wanted(message):
                return message

    def apply(self, edits: list[dict[str, Any]]) -> str:
        """Return the text after edits."""
        lines, text = Lines(self.text), self.text
        places = [
            (
                lines.offset(**_place(e["range"]["start"])),
                lines.offset(**_place(e["range"]["end"])),
                e,
            )
            for e in edits
        ]
        for start, end, edit in sorted(places, key=lambda one: one[0], reverse=True):
            text = text[:start] + edit["newText"] + text[end:]
        return text

    def _send(self, message: dict[str, Any]) -> None:
        data = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(data), data))
        self.process.stdin.flush()

    def _listen(self) -> None:
        out = self.process.stdout
        assert out is not None
        length = 0
        while line := out.readline():
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
            elif line == b"\r\n":
                self.waiting.put(json.loads(out.read(length)))


def _place(place: dict[str, int]) -> dict[str, int]:
    return {"line": place["line"], "column": place["character"]}


@pytest.fixture(scope="module")
def editor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Editor]:
    """One server for all tests; each sets the text that it needs."""
    made = Editor(tmp_path_factory.mktemp("editor"))
    yield made
    made.ask("shutdown", None)
    made.tell("exit", None)
    with made.process:  # closes the pipes
        assert made.process.wait(PATIENCE) == 0


def test_columns_are_counted_in_the_units_of_the_encoding() -> None:
    """A character outside of the basic plane has two UTF-16 units and four bytes."""
    text = 'a\n"😀é" x\r\nlast'
    for encoding, column in (("utf-16", 6), ("utf-8", 9), ("utf-32", 5)):
        lines = Lines(text, encoding)  # type: ignore[arg-type]
        assert lines.position(text.index("x")) == (1, column)
        assert lines.offset(1, column) == text.index("x")
    assert Lines(text).offset(1, 99) == text.index("\r")
    assert Lines(text).position(text.index("last")) == (2, 0)


def test_findings_are_published_and_fixed(editor: Editor) -> None:
    """The range is that of the key, and the preferred action mends the text."""
    assert editor.write(TEXT) == []
    wrong = TEXT.replace('{"use": "linear@1"', '{"use": "liner@1"')
    [finding] = editor.write(wrong)
    assert (finding["code"], finding["severity"], finding["source"]) == ("N01", 1, "weft")
    line, column = Lines(wrong).position(wrong.index('"liner@1"'))
    assert finding["range"]["start"] == {"line": line, "character": column}
    context = {"diagnostics": [finding]}
    document = {"textDocument": {"uri": editor.uri}, "range": finding["range"], "context": context}
    [action] = editor.ask("textDocument/codeAction", document)
    assert action["isPreferred"]
    assert editor.apply(action["edit"]["changes"][editor.uri]) == TEXT
    document["context"] = {"diagnostics": [], "only": ["source.fixAll"]}
    [every] = editor.ask("textDocument/codeAction", document)
    assert editor.apply(every["edit"]["changes"][editor.uri]) == TEXT


def test_a_wire_is_completed_where_the_text_is_broken(editor: Editor) -> None:
    """The value is missing; what is offered is what fits, and the edit mends the text."""
    [finding] = editor.write(TEXT.replace('"memory": "encoder.x"', '"memory": '))
    assert finding["code"] == "S01"
    at = '"memory": , "mask": "source_mask"'
    found = editor.about("completion", at, len('"memory": '))["items"]
    labels = [item["label"] for item in sorted(found, key=lambda one: one["sortText"])]
    assert labels == ["source_embedding.y", "source_position.y", "encoder.x"]
    assert editor.apply([found[labels.index("encoder.x")]["textEdit"]]) == TEXT


def test_types_places_and_outline_are_answered(editor: Editor) -> None:
    """Of a wire, its type; of a template's name, its definition."""
    editor.write(TEXT)
    shown = editor.about("hover", '"encoder.x"', 3)
    assert "`f[B S 512]`" in shown["contents"]["value"]
    place = editor.about("definition", '"block": "encoder_layer"', 12)
    line, column = Lines(TEXT).position(TEXT.index('encoder_layer": {'))
    assert place["uri"] == editor.uri
    assert place["range"]["start"] == {"line": line, "character": column}
    used = editor.about("references", '"encoder": {', 3, context={"includeDeclaration": True})
    assert len(used) == 2  # its key, and the wire of the decoder
    outline = editor.ask("textDocument/documentSymbol", {"textDocument": {"uri": editor.uri}})
    assert "nodes" in [one["name"] for one in outline]


def test_a_name_is_renamed_or_the_reason_is_given(editor: Editor) -> None:
    """An editor shows the message of the error."""
    editor.write(TEXT)
    edits = editor.about("rename", '"encoder": {', 3, newName="stack")["changes"][editor.uri]
    assert editor.write(editor.apply(edits)) == []
    assert '"memory": "stack.x"' in editor.apply([])
    assert "is taken" in editor.about("rename", '"stack": {', 3, newName="decoder")
    assert editor.about("prepareRename", '"linear@1"', 3) is None


def test_a_name_is_renamed_in_the_files_of_the_folder(editor: Editor) -> None:
    """A child's patch follows; one whose wildcard also means another node refuses."""
    folder = Path(editor.uri.removeprefix("file://")).parent
    patch = '{{"select": "{}", "set": {{"params.kv_heads": 2}}}}'
    form = '{{"format": 1, "extends": "mine", "name": "{}", "patch": [{}]}}'
    child, selection = folder / "child.json", "encoder.*.self_attention/f"
    child.write_text(form.format("child", patch.format(selection)))
    wrong = folder / "wrong.json"
    wrong.write_text(form.format("wrong", patch.format("encoder.*.slef/f")))
    (folder / "mine.json").write_text(TEXT)
    assert editor.write(TEXT) == []
    at = '"self_attention": {'
    changes = editor.about("rename", at, 3, newName="mixer")["changes"]
    assert editor.shown == ["wrong.json has mistakes and is left as it is"]
    assert changes.keys() == {editor.uri, child.as_uri()}
    [edit] = changes[child.as_uri()]
    start = child.read_text().index("self_attention")
    assert edit == {
        "range": {
            "start": {"line": 0, "character": start},
            "end": {"line": 0, "character": start + len("self_attention")},
        },
        "newText": "mixer",
    }
    child.write_text(child.read_text().replace("encoder.*.self", "*.*.self"))
    refused = editor.about("rename", at, 3, newName="mixer")
    assert "patch 0 of 'child.json' selects '*.*.self_attention/f'" in refused
    for file in (child, wrong, folder / "mine.json"):
        file.unlink()


def test_a_text_is_formatted_and_a_wrong_one_left(editor: Editor) -> None:
    """A finding says why it is left."""
    options = {"tabSize": 2, "insertSpaces": True}
    given = {"textDocument": {"uri": editor.uri}, "options": options}
    editor.write(json.dumps(json.loads(TEXT)))
    made = editor.apply(editor.ask("textDocument/formatting", given))
    assert json.loads(made) == json.loads(TEXT)
    assert made.startswith('{\n  "format": 1,\n  "name": "transformer-base",')
    editor.write(TEXT + "{")
    assert editor.ask("textDocument/formatting", given) == []


def test_a_parent_that_changes_on_disk_changes_the_findings(editor: Editor) -> None:
    """The text of the child is the same."""
    folder = Path(editor.uri.removeprefix("file://")).parent
    child = '{"format": 1, "extends": "parent", "name": "child"}'
    [finding] = editor.write(child)
    assert finding["code"] == "N08"
    (folder / "parent.json").write_text(TEXT)
    editor.tell("workspace/didChangeWatchedFiles", {"changes": []})
    again = editor.until(lambda one: one.get("params", {}).get("version") == editor.version)
    assert again["params"]["diagnostics"] == []


def test_other_json_files_have_no_findings(editor: Editor) -> None:
    """An editor may start the server for every JSON file."""
    assert editor.write('{"name": "an-extension", "version": "1.0.0"}') == []
