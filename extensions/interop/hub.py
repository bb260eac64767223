"""Push and pull: models to and from a hub, at a commit.

Files of a stranger are read, not run: only formats that hold data are downloaded, and a checkpoint
is compared with its manifest before its folder appears.  The token is that of `huggingface_hub`
(the variable HF_TOKEN, or its login); it is no argument, and no message shows it.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ...plugin import InputError, open_checkpoint, required
from ...runtime.checkpoint.exporter import MARKER
from ...runtime.checkpoint.manifest import MANIFEST, Manifest
from ...runtime.system.folders import new_folder
from ...runtime.system.strangers import has_file, object_in
from ...specs.regular_files import path_in

DATA = frozenset(
    (".safetensors", ".json", ".model", ".txt", ".md", ".svg", ".npz", ".jsonl", ".spm")
)
"""Suffixes of the files that are downloaded: of formats that run no code when they are opened."""
LARGEST = 64 << 30
"""Most bytes that a pull downloads."""
MOST = 10_000
"""Most files of a repository."""
_COMMIT = re.compile(r"[0-9a-f]{40}")
_REPO = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
_KEPT_BACK = ("optimizer", "optimizer.safetensors", "memory.safetensors")
"""Files of a checkpoint that only a training that resumes reads."""


@dataclass(frozen=True, slots=True)
class Pushed:
    """What was uploaded."""

    repo: str
    revision: str
    """The commit, which `pull` takes."""
    files: tuple[str, ...]
    bytes: int


@dataclass(frozen=True, slots=True)
class Pulled:
    """What was downloaded."""

    folder: Path
    kind: str
    """`checkpoint`, or `transformers` for a folder that `weft import hf` reads."""
    files: tuple[str, ...]
    skipped: tuple[str, ...]
    """Files that were not downloaded, such as code."""
    bytes: int


def push(
    folder: Path | str,
    repo: str,
    *,
    branch: str = "main",
    private: bool = False,
    message: str | None = None,
    endpoint: str | None = None,
) -> Pushed:
    """Upload a checkpoint, or an export of one, to a repository of a hub, in one commit.

    Args:
        folder: a checkpoint, or a folder written by `weft export`.
        repo: `OWNER/NAME`; it is created if there is none.
        branch: the branch to commit to.
        private: whether a new repository is private.
        message: message of the commit; default: the name of the spec.
        endpoint: address of the hub; default: that of `huggingface_hub`.

    Raises:
        InputError: the folder is neither, a file is a link that leads out of it, the name is wrong,
            or the hub refuses; a commit is complete, or nothing is changed.
    """
    folder = Path(folder)
    _refuse_repo(repo)
    names = _uploaded(folder)
    paths = {name: path_in(folder, name) for name in names}
    hub = required("huggingface_hub", "hub", str(folder))
    with _refusals(hub, repo):
        api = hub.HfApi(endpoint=endpoint)
        api.create_repo(repo, private=private, exist_ok=True)
        operations = [
            hub.CommitOperationAdd(path_in_repo=name, path_or_fileobj=str(path))
            for name, path in paths.items()
        ]
        title = message or f"Upload {folder.resolve().name}"
        commit = api.create_commit(repo, operations, commit_message=title, revision=branch)
    size = sum(path.stat().st_size for path in paths.values())
    return Pushed(repo, str(commit.oid), tuple(names), size)


def _uploaded(folder: Path) -> list[str]:
    """Return the files of a checkpoint or an export by their paths.

    Raises:
        InputError: the folder is neither.
    """
    if has_file(folder, MANIFEST):
        files = Manifest(folder)
        files.verify()
        names = [name for name in files.names if not name.startswith(_KEPT_BACK)]
        if len(names) == len(files.names):
            return [*names, MANIFEST]
        raise InputError(
            "the checkpoint has the state of its optimizer, which its readers do not need",
            location=str(folder),
            help="push the best or averaged checkpoint of the run",
        )
    if has_file(folder, MARKER):
        paths = (path for path in sorted(folder.rglob("*")) if not path.is_dir())
        return [path.relative_to(folder).as_posix() for path in paths]
    raise InputError(
        "neither a checkpoint nor a folder that weft export has written",
        location=str(folder),
        help="give such a folder; other files are not uploaded",
    )


def pull(
    repo: str, revision: str | None, out: Path | str, *, endpoint: str | None = None
) -> Pulled:
    """Download a model at a commit; the folder appears when all files are there and checked.

    Args:
        repo: `OWNER/NAME`.
        revision: the commit, 40 hexadecimal digits.
        out: the folder to write, which must not exist.
        endpoint: address of the hub; default: that of `huggingface_hub`.

    Raises:
        InputError: the revision is no commit (the message names that of the branch), the folder
            exists, the repository has no model or is too large, a checkpoint differs from its
            manifest, or the hub refuses; then nothing is written.
    """
    out = Path(out)
    _refuse_repo(repo)
    if out.exists():
        raise InputError("the path exists", location=str(out), help="choose a new folder")
    hub = required("huggingface_hub", "hub", repo)
    with _refusals(hub, repo):
        api = hub.HfApi(endpoint=endpoint)
        if revision is None or not _COMMIT.fullmatch(revision):
            _refuse_unpinned(api, repo, revision)
        info = api.model_info(repo, revision=revision, files_metadata=True)
        names, skipped, size = _downloaded(repo, info.siblings or ())
        with _written(out) as partial:
            for name in names:
                api.hf_hub_download(repo, name, revision=revision, local_dir=partial)
            shutil.rmtree(partial / ".cache", ignore_errors=True)
            kind = _kind(partial, repo)
    return Pulled(out, kind, tuple(names), tuple(skipped), size)


@contextmanager
def _written(out: Path) -> Iterator[Path]:
    """Yield a folder that becomes `out`.

    Raises:
        InputError: it cannot be written.
    """
    try:
        with new_folder(out) as partial:
            yield partial
    except OSError as error:
        if error.filename is None:
            raise
        raise InputError(
            f"cannot write the folder: {error.strerror}",
            location=str(out),
            help="choose a writable folder on a disk with free space",
        ) from error


def _refuse_repo(repo: str) -> None:
    if not _REPO.fullmatch(repo):
        raise InputError(
            "the name of a repository is OWNER/NAME", location=repo, help="such as me/my-model"
        )


def _refuse_unpinned(api: Any, repo: str, revision: str | None) -> None:
    """Raise an error that names the commit of a branch or a tag."""
    commit = api.model_info(repo, revision=revision).sha
    name = "no revision is given" if revision is None else f"'{revision}' is no commit"
    raise InputError(
        f"{name}: what it names may change",
        location=repo,
        help=f"read the repository, and give --revision {commit}, which is the newest now",
    )


def _downloaded(repo: str, siblings: Any) -> tuple[list[str], list[str], int]:
    """Return the files to download, those to skip, and the bytes of the first.

    Raises:
        InputError: there are too many files or bytes, or a path leads out of the folder.
    """
    if len(siblings) > MOST:
        raise InputError(f"the repository has more than {MOST} files", location=repo)
    names, skipped, size = [], [], 0
    for sibling in siblings:
        path = PurePosixPath(sibling.rfilename)
        if path.is_absolute() or ".." in path.parts or "\\" in sibling.rfilename:
            raise InputError("a file leads out of the folder", location=f"{repo}: {path.name}")
        if path.suffix in DATA and not any(part.startswith(".") for part in path.parts):
            names.append(sibling.rfilename)
            size += sibling.size or 0
        else:
            skipped.append(sibling.rfilename)
    if size > LARGEST:
        problem = f"the files have {size / 1e9:.1f} GB, more than {LARGEST / 1e9:.1f}"
        raise InputError(problem, location=repo, help="download it with huggingface_hub")
    return names, skipped, size


def _kind(folder: Path, repo: str) -> str:
    """Return what a downloaded folder is, after a check that runs nothing of it.

    Raises:
        InputError: it is neither a checkpoint nor a model of the library, or it is damaged.
    """
    if has_file(folder, MANIFEST):
        open_checkpoint(folder)
        return "checkpoint"
    weights = any(name.endswith(".safetensors") for name in Manifest(folder).names)
    if has_file(folder, "config.json") and weights:
        object_in(folder, "config.json")
        return "transformers"
    raise InputError(
        "neither a checkpoint of weft nor a model with config.json and safetensors",
        location=repo,
        help="give the repository of a model; weights in other formats could run code",
    )


@contextmanager
def _refusals(hub: Any, repo: str) -> Iterator[None]:
    """Raise an error of the hub or the network as one without a traceback, and without a token.

    Raises:
        InputError: there was one.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # noqa: BLE001 - its libraries raise many kinds; none may show a token
        reason = " ".join(str(error).split())
        token = hub.get_token()
        reason = reason.replace(token, "***") if token else reason
        raise InputError(
            f"the hub refuses, or cannot be reached: {type(error).__name__}: {reason:.300}",
            location=repo,
            help="check the name and the network; log in with `hf auth login`, or set HF_TOKEN",
        ) from None
