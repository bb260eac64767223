"""Push and pull with a stand-in for a hub, which stores commits in memory."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import weft
from weft.plugin import open_checkpoint
from weft.runtime.checkpoint.saving import Contents, save
from weft.runtime.cli.main import main
from weft.specs.findings import InputError

from .small_exports import checkpoint, small

constants = pytest.importorskip("huggingface_hub.constants", reason="needs the extra hub")
pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("default")]

TOKEN = "hf_secretsecretsecretsecretsecretsecret"
REPO = "me/model"


class Hub(ThreadingHTTPServer):
    """Repositories by name: the files of each commit, in their order."""

    daemon_threads = True

    def __init__(self) -> None:
        """Listen at a free port."""
        super().__init__(("127.0.0.1", 0), Handler)
        self.commits: dict[str, dict[str, dict[str, bytes]]] = {}
        self.tokens: set[str | None] = set()

    @property
    def address(self) -> str:
        """The address of the hub."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def commit(self, repo: str, files: dict[str, bytes]) -> str:
        """Add a commit, and return its name."""
        commits = self.commits.setdefault(repo, {})
        name = hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()
        commits.pop(name, None)
        commits[name] = files
        return name


class Handler(BaseHTTPRequestHandler):
    """Answers the requests that the library makes."""

    server: Hub

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def answer(self, value: Any, status: int = 200, **headers: str) -> None:
        """Send a value as JSON, or bytes."""
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        for name, text in headers.items():
            self.send_header(name.replace("_", "-"), text)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def do_POST(self) -> None:
        """Make a repository, or add a commit."""
        self.server.tokens.add(self.headers.get("Authorization"))
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = unquote(self.path.partition("?")[0])
        if path.endswith("/repos/create"):
            if json.loads(body)["name"] == "refused":
                return self.answer({"error": f"wrong token {TOKEN}"}, 400)
            repo = f"{json.loads(body).get('organization') or 'me'}/{json.loads(body)['name']}"
            self.server.commit(repo, {})
            return self.answer({"url": f"{self.server.address}/{repo}", "id": repo, "name": repo})
        repo = "/".join(path.split("/")[3:5])
        if "/preupload/" in path:
            files = [
                {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False}
                for file in json.loads(body)["files"]
            ]
            return self.answer({"files": files})
        files = dict(list(self.server.commits[repo].values())[-1])
        for line in body.splitlines():
            entry = json.loads(line)
            if entry["key"] == "file":
                value = entry["value"]
                files[value["path"]] = base64.b64decode(value["content"])
        commit = self.server.commit(repo, files)
        url = f"{self.server.address}/{repo}/commit/{commit}"
        return self.answer({"commitUrl": url, "commitOid": commit, "success": True})

    def do_GET(self) -> None:
        """Return the files of a commit, or one of them."""
        parts = unquote(self.path.partition("?")[0]).strip("/").split("/")
        if parts[:2] == ["api", "models"]:
            commits = self.server.commits.get("/".join(parts[2:4]))
            if commits is None:
                return self.answer({"error": "Not found"}, 404, X_Error_Code="RepoNotFound")
            wanted = parts[5] if len(parts) > 5 else "main"
            name = wanted if wanted in commits else list(commits)[-1]
            siblings = [
                {"rfilename": path, "size": len(data), "blobId": "0" * 40}
                for path, data in commits[name].items()
            ]
            return self.answer({"id": "/".join(parts[2:4]), "sha": name, "siblings": siblings})
        repo, name, path = "/".join(parts[:2]), parts[3], "/".join(parts[4:])
        data = self.server.commits[repo][name][path]
        digest = hashlib.sha256(data).hexdigest()
        return self.answer(data, X_Repo_Commit=name, ETag=f'"{digest}"')

    do_HEAD = do_GET  # noqa: N815 - the name of the library


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """Return a running hub, and let the library have a token and a cache of its own."""
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    for name, value in (("HF_HUB_OFFLINE", False), ("HF_HUB_DISABLE_XET", True)):
        monkeypatch.setattr(constants, name, value)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    with Hub() as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield running
        running.shutdown()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a small checkpoint."""
    made = checkpoint(small("gpt2"))
    contents = Contents(graph=made.graph, weights=made.weights, state=made.state)
    save(tmp_path / "ours", contents)
    return tmp_path / "ours"


def test_a_checkpoint_returns_as_it_was(server: Hub, folder: Path, tmp_path: Path) -> None:
    """Every file to the byte, at the commit that `push` returned, whatever came after it."""
    pushed = weft.push(folder, REPO, endpoint=server.address)
    server.commit(REPO, {"spec.json": b"{}", "manifest.json": b"{}"})

    pulled = weft.pull(REPO, pushed.revision, tmp_path / "theirs", endpoint=server.address)

    assert pulled.kind == "checkpoint"
    ours = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert {file.name: file.read_bytes() for file in pulled.folder.iterdir()} == ours
    assert server.tokens == {f"Bearer {TOKEN}"}


def test_a_branch_is_refused_with_its_commit(server: Hub, tmp_path: Path) -> None:
    """What a branch names may change between reading and opening."""
    commit = server.commit(REPO, {"config.json": b"{}"})

    for revision in (None, "main"):
        with pytest.raises(InputError) as error:
            weft.pull(REPO, revision, tmp_path / "out", endpoint=server.address)
        assert commit in str(error.value.help)
    assert not (tmp_path / "out").exists()


def test_code_and_pickles_are_not_downloaded(server: Hub, folder: Path, tmp_path: Path) -> None:
    """They are named instead."""
    weights = (folder / "weights.safetensors").read_bytes()
    files = {"config.json": b"{}", "model.safetensors": weights}
    code = {"modeling_x.py": b"raise SystemExit", "pytorch_model.bin": b"", ".hidden.json": b"{}"}
    commit = server.commit(REPO, {**files, **code})

    pulled = weft.pull(REPO, commit, tmp_path / "out", endpoint=server.address)

    assert {file.name for file in pulled.folder.iterdir()} == set(files)
    assert set(pulled.skipped) == set(code)
    assert pulled.kind == "transformers"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"weights.safetensors": b"other"}, "weights.safetensors"),
        ({"../x.json": b"{}"}, "leads out"),
        ({"manifest.json": None, "spec.json": None}, "neither a checkpoint"),
    ],
)
def test_what_is_no_model_leaves_nothing(
    server: Hub,
    folder: Path,
    tmp_path: Path,
    change: dict[str, bytes | None],
    problem: str,
) -> None:
    """A damaged file, a path out of the folder, and files that belong to no model."""
    files = {file.name: file.read_bytes() for file in folder.iterdir()}
    changed = {**files, **change}
    commit = server.commit(REPO, {name: data for name, data in changed.items() if data is not None})

    with pytest.raises(InputError, match=problem):
        weft.pull(REPO, commit, tmp_path / "out" / "theirs", endpoint=server.address)
    assert not (tmp_path / "out" / "theirs").exists()
    assert not list((tmp_path / "out").glob(".*")) if (tmp_path / "out").exists() else True


def test_other_folders_are_not_uploaded(server: Hub, tmp_path: Path) -> None:
    """Such as one's home: nothing is sent."""
    (tmp_path / "id_rsa").write_text("secret")

    with pytest.raises(InputError, match="neither a checkpoint nor a folder that weft export"):
        weft.push(tmp_path, REPO, endpoint=server.address)
    assert server.commits == {}


def test_a_link_out_of_the_folder_is_not_uploaded(
    server: Hub, folder: Path, tmp_path: Path
) -> None:
    """A stranger's export could hold one to a secret."""
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    weft.export(folder, "huggingface", tmp_path / "out")
    (tmp_path / "out" / "notes.txt").symlink_to(secret)

    with pytest.raises(InputError, match="link"):
        weft.push(tmp_path / "out", REPO, endpoint=server.address)
    assert server.commits == {}


def test_no_message_shows_the_token(
    server: Hub, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Although the hub repeats it."""
    words = ["push", str(folder), "me/refused", "--endpoint", server.address]

    assert main(words) == 1
    output = capsys.readouterr()
    assert "wrong token" in output.err
    assert TOKEN not in output.out + output.err


def test_the_commands_print_the_next_one(
    server: Hub, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`push` prints the `pull` that returns the model."""
    assert main(["push", str(folder), REPO, "--endpoint", server.address]) == 0
    line = capsys.readouterr().out.splitlines()[-1].split()
    assert line[:3] == ["weft", "pull", REPO]
    out = str(tmp_path / "theirs")

    assert main([*line[1:5], "-o", out, "--endpoint", server.address]) == 0
    assert open_checkpoint(out).graph.name == "gpt2"
