"""The server of the studio: who may ask, and what can be written."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.testclient import TestClient
from weft.extensions.editor.studio import files
from weft.extensions.editor.studio.files import opened
from weft.extensions.editor.studio.server import make_app
from weft.extensions.editor.studio.session import MOST_READS, Session
from weft.specs.findings import InputError
from weft.specs.reader import SHIPPED

PORT, TOKEN = 8999, "t" * 32
GOOD = {"authorization": f"Bearer {TOKEN}", "host": f"127.0.0.1:{PORT}"}
TEXT = (SHIPPED / "models" / "transformer-tiny.json").read_text()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a file of a user."""
    path = tmp_path / "mine.json"
    path.write_text(TEXT)
    return path


@pytest.fixture
def client(file: Path) -> TestClient:
    """Return a client with the token."""
    return TestClient(make_app(Session(opened(str(file))), TOKEN, PORT), headers=GOOD)


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "Bearer wrong"},
        {"authorization": ""},
        {"host": "evil.example"},
        {"host": f"127.0.0.1.evil.example:{PORT}"},
        {"host": "127.0.0.1:1"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:3000"},
        {"sec-fetch-site": "cross-site"},
    ],
)
def test_requests_from_elsewhere_are_refused(client: TestClient, headers: dict[str, str]) -> None:
    """Requests from elsewhere are refused."""
    response = client.get("/api/file", headers=headers)
    assert response.status_code == 403
    assert TEXT[:20] not in response.text


def test_a_page_begins_with_the_file_and_the_answer_to_it(client: TestClient) -> None:
    """One request, so that the drawing is on the screen sooner."""
    start = client.get("/api/start").json()
    assert start["file"] == client.get("/api/file").json()
    assert start["look"] == client.post("/api/look", json={"text": TEXT}).json()
    assert client.get("/api/start", headers={"authorization": ""}).status_code == 403


def test_an_answer_is_kept_until_the_text_or_the_sizes_change(file: Path) -> None:
    """Undo asks about a text again; another size gives other numbers."""
    session = Session(opened(str(file)))
    first = session.look({"text": TEXT})
    assert session.look({"text": TEXT}) is first
    assert session.look({"text": TEXT, "sizes": {"T": 8}})["scene"]["sizes"]["T"] == 8
    assert session.look({"text": TEXT.replace('"layers": 4', '"layers": 3')}) != first
    assert session.look({"text": TEXT, "key": "-encoder"})["key"] == "-encoder"
    for turn in range(MOST_READS):
        session.look({"text": TEXT + " " * (turn + 1)})
    assert session.look({"text": TEXT}) == first
    assert session.look({"text": TEXT}) is not first
    file.write_text(TEXT + " ")
    session.file()
    assert not session._reads


def test_an_answer_is_dropped_when_another_file_changes(file: Path) -> None:
    """The text may name it, such as the spec that it extends."""
    text = '{"format": 1, "extends": "mine", "name": "child"}'
    child = file.parent / "child.json"
    child.write_text(text)
    session = Session(opened(str(child)))
    session.file()
    before = session.look({"text": text})

    file.write_text(TEXT.replace('"layers": 4', '"layers": 3'))
    session.file()

    assert session.look({"text": text})["scene"] != before["scene"]


def test_the_page_allows_no_inline_script(client: TestClient) -> None:
    """The page allows no inline script."""
    response = client.get("/", headers={"authorization": ""})
    policy = response.headers["content-security-policy"]
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert "<script>" not in response.text
    assert TOKEN not in response.text


def test_the_own_origin_may_ask(client: TestClient) -> None:
    """The own origin may ask."""
    answer = client.get("/api/file", headers={"origin": f"http://127.0.0.1:{PORT}"})
    assert answer.json()["text"] == TEXT


def test_a_file_that_changed_outside_is_not_overwritten(client: TestClient, file: Path) -> None:
    """A file that changed outside is not overwritten."""
    digest = client.get("/api/file").json()["digest"]
    file.write_text(TEXT + "\n")
    answer = client.post("/api/save", json={"text": "{}", "digest": digest})
    assert answer.status_code == 409
    assert file.read_text() == TEXT + "\n"
    digest = client.get("/api/file").json()["digest"]
    assert client.post("/api/save", json={"text": "{}", "digest": digest}).status_code == 200
    assert file.read_text() == "{}"


@pytest.mark.parametrize("name", ["../x", "a/b", ".hidden", "", "x\x00", "C:x", "a" * 200])
def test_variants_are_written_beside_the_file_only(
    client: TestClient, file: Path, name: str
) -> None:
    """Variants are written beside the file only."""
    text = TEXT.replace('"heads": 4', '"heads": 2')
    answer = client.post("/api/save_as", json={"text": text, "name": name, "write": True})
    assert answer.status_code == 422
    assert [path.name for path in file.parent.iterdir()] == ["mine.json"]


def test_a_variant_never_replaces_a_file(client: TestClient, file: Path) -> None:
    """A variant never replaces a file."""
    text = TEXT.replace('"heads": 4', '"heads": 2')
    asked = {"text": text, "name": "two", "write": True}
    assert client.post("/api/save_as", json=asked).status_code == 200
    assert '"heads": 2' in (file.parent / "two.json").read_text()
    assert client.post("/api/save_as", json=asked).status_code == 422


def test_a_variant_that_cannot_be_written_leaves_no_file(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name would be taken at the next attempt."""

    def fail(*_: object) -> None:
        raise InputError("cannot write the file: No space left on device")

    monkeypatch.setattr(files, "write_beside", fail)
    with pytest.raises(InputError, match="No space left"):
        opened(str(file)).save_new("two", TEXT)

    assert [path.name for path in file.parent.iterdir()] == ["mine.json"]


def test_a_complete_text_is_saved_under_its_name_and_opened(client: TestClient, file: Path) -> None:
    """With its mistakes, if it has some; from then on, saving writes the new file."""
    text = TEXT.replace('"heads": 4', '"heads": 3')
    asked = {"text": text, "name": "three", "complete": True, "write": True}

    answer = client.post("/api/save_as", json=asked).json()

    expected = text.replace('"name": "transformer-tiny"', '"name": "three"')
    assert (file.parent / "three.json").read_text() == answer["text"] == expected
    digest = answer["file"]["digest"]
    assert client.post("/api/save", json={"text": "{}", "digest": digest}).status_code == 200
    assert (file.parent / "three.json").read_text() == "{}"
    assert file.read_text() == TEXT


def test_a_complete_text_that_means_something_else_elsewhere_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parent of a shipped variant is another file in a folder that has one of this name."""
    monkeypatch.chdir(tmp_path)
    other = TEXT.replace('"name": "transformer-tiny"', '"name": "transformer-base"')
    (tmp_path / "transformer-base.json").write_text(other)
    session = Session(opened("transformer-prenorm"))
    asked = {"text": session.file()["text"], "name": "x", "complete": True, "write": True}

    with pytest.raises(InputError, match="not the same one in this folder"):
        session.save_as(asked)

    assert not (tmp_path / "x.json").exists()


def test_a_file_of_a_checkpoint_is_only_looked_at(tmp_path: Path) -> None:
    """Its manifest has the digest of each of its files; a copy of the spec is edited instead."""
    folder = tmp_path / "averaged"
    folder.mkdir()
    for name, content in {"spec.json": TEXT, "state.json": "{}", "weights.safetensors": ""}.items():
        (folder / name).write_text(content)

    session = Session(opened(str(folder / "spec.json")))

    assert session.file()["checkpoint"] == str(folder)
    assert not session.look({"text": TEXT})["editable"]
    with pytest.raises(InputError, match="a checkpoint is not edited"):
        session.edit({"text": TEXT, "what": "remove", "path": "head"})
    with pytest.raises(InputError, match="belongs to weft or to a checkpoint"):
        session.save({"text": "{}", "digest": session.file()["digest"]})
    assert (folder / "spec.json").read_text() == TEXT


def test_a_file_keeps_its_line_ends(client: TestClient, file: Path) -> None:
    """The editor of the page has line feeds alone, and offsets of findings count them."""
    file.write_bytes(TEXT.replace("\n", "\r\n").encode())

    read = client.get("/api/file").json()
    answer = client.post("/api/save", json={"text": f"{TEXT}\n", "digest": read["digest"]})

    assert read["text"] == TEXT
    assert answer.status_code == 200
    assert file.read_bytes() == f"{TEXT}\n".replace("\n", "\r\n").encode()


def test_shipped_files_and_other_folders_are_read_only(client: TestClient) -> None:
    """Shipped files and other folders are read only."""
    shipped = opened("transformer-tiny")
    with pytest.raises(InputError, match="belongs to weft"):
        shipped.save("{}", "")
    answer = client.post("/api/diff", json={"text": TEXT, "other": "/etc/passwd"})
    assert answer.status_code == 422
    assert "root:" not in answer.text


@pytest.mark.parametrize("body", [b"[]", b"{", b"\xff", b"{" * 100_000])
def test_other_bodies_are_refused(client: TestClient, body: bytes) -> None:
    """Other bodies are refused."""
    assert client.post("/api/look", content=body).status_code == 400


def test_the_engine_completes_and_explains(client: TestClient) -> None:
    """The engine completes and explains."""
    offset = TEXT.index("transformer-base") + 3
    hover = client.post("/api/hover", json={"text": TEXT, "offset": offset}).json()["hover"]
    assert "Vaswani" in hover["markdown"]
    items = client.post("/api/complete", json={"text": TEXT, "offset": offset}).json()["items"]
    assert "transformer-gqa" in {item["label"] for item in items}
    assert client.post("/api/hover", json={"text": TEXT, "offset": -1}).status_code == 422


def test_a_comparison_marks_what_changed(client: TestClient) -> None:
    """A comparison marks what changed."""
    assert client.post("/api/diff", json={"text": TEXT, "other": ""}).json()["equal"]
    other = client.post("/api/diff", json={"text": TEXT, "other": "transformer-gqa"}).json()
    marks = {path: fact.get("changed") for path, fact in other["new"]["facts"].items()}
    assert marks["encoder.*.self_attention"] == "changed"
    assert marks["encoder.*.feed_forward/f"] == "changed"  # another width
