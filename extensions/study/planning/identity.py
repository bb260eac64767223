"""Identity of a job: equal jobs train the same weights, so that nothing is trained twice."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ....plugin import FileTokenizerSettings, Graph, canonical, reader_of, resolve, weights_digest
from ....runtime.data.settings import split_address
from ....specs.files import sha256_of
from .base import Run

NUMERICS = 3
"""Raised by a release in which the same run gives other weights; jobs of older ones run again."""
LENGTH = 16
"""Characters of a key."""
_NAMES = ("name", "doc", "objective", "params", "trackers", "seed")
"""Settings of a run that are names, or part of the graph or of the job."""

_LATER = (("", "without"), ("evaluate", "until"))
"""Settings of a group that came after the first jobs, and change nothing if they are empty."""


def digest_of(value: Any, length: int = 64) -> str:
    """Return the SHA-256 digest of a JSON value."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def signature(run: Run, graph: Graph) -> str:
    """Return a digest of what a row trains: its graph and the settings of its run.

    Names, descriptions, trackers, metrics that select nothing, test sets and the seed do not count.
    """
    settings = run.model_dump(mode="json", by_alias=True)
    for name in _NAMES:
        settings.pop(name, None)
    settings["without"] = sorted(run.without)  # their order means nothing
    settings["evaluate"] = {
        key: value
        for key, value in settings["evaluate"].items()
        if key not in ("metrics", "samples")
    }
    for group, name in _LATER:  # jobs of before there was this setting are the same
        inner = settings[group] if group else settings
        if not inner[name]:
            del inner[name]
    settings["data"] = {
        key: value
        for key, value in settings["data"].items()
        if key not in ("root", "test", "prepared")
    }
    return digest_of({"graph": _nameless(canonical(graph)), "run": settings})


def _nameless(form: Mapping[str, Any]) -> str:
    """Return a digest of a canonical form without the names of specs, also of the models in it."""
    content = {key: value for key, value in form.items() if key not in ("name", "doc", "allow")}
    text = json.dumps({**content, "params": {}}, sort_keys=True)
    for name, model in form.get("params", {}).items():
        text = text.replace(json.dumps(f"={name}"), json.dumps(f"={_nameless(model['spec'])}"))
    return digest_of(text)


def job_key(signature: str, seed: int, data: str) -> str:
    """Return the key of a job.

    Args:
        signature: of its row.
        seed: seed of the run.
        data: digest of the training and validation data.
    """
    torch = version("torch")
    return digest_of([NUMERICS, torch, signature, seed, data], LENGTH)


class DataDigests:
    """Digests of the data of runs; each file is read once."""

    def __init__(self) -> None:
        """Start without digests."""
        self._files: dict[tuple[str, int, int], str] = {}

    def of(self, run: Run, splits: tuple[str, ...] = ("train", "valid")) -> str:
        """Return the digest of the contents of some splits of a run.

        A reader without files, such as that of a pinned data set, counts with its settings.

        Raises:
            InputError: a file is outside of the root.
        """
        return digest_of([[name, *self._split(run, name)] for name in splits])

    def examples(self, run: Run, split: str) -> str:
        """Return a digest of the files of a split, whatever their names and the columns are.

        Splits with equal digests and equally many rows have the same examples.

        Raises:
            InputError: a file is outside of the root.
        """
        name, sizes, files = self._split(run, split)
        return digest_of(sorted(files.values()) or [name, sizes])

    def others(self, run: Run) -> list[str]:
        """Return the digests of the checkpoints and tokenizers that a run reads.

        Raises:
            InputError: a tokenizer is outside of the root, or a checkpoint is damaged.
        """
        checkpoints = [
            param["checkpoint"] for param in run.params.values() if _is_checkpoint(param)
        ]
        folders = [
            Path(checkpoint)
            for checkpoint in (*checkpoints, *([] if run.start is None else [run.start.checkpoint]))
        ]
        weights = [folder / "weights.safetensors" for folder in folders]
        digests = [
            self._file(path) if path.is_file() else weights_digest(path.parent) for path in weights
        ]
        files = [
            tokenizer
            for tokenizer in run.tokenizers.values()
            if isinstance(tokenizer, FileTokenizerSettings) and run.data.prepared is None
        ]
        return [
            *digests,
            *(self._file(resolve(run.data.root, tokenizer.path)) for tokenizer in files),
        ]

    def _split(self, run: Run, split: str) -> tuple[str, dict[str, Any], dict[str, str]]:
        """Return the name and the settings of the reader of a split, and digests of its files."""
        settings = {"train": run.data.train, "valid": run.data.valid, **run.data.test}[split]
        if run.data.prepared is not None:  # the address has the digest of all files
            digest = digest_of([split, split_address(run.data.prepared)[1]])
            return settings.reader, {}, {"": digest}
        reader = reader_of(settings, run.data.root)
        files = {key: self._file(path) for key, path in sorted(reader.contents().items())}
        return settings.reader, dict(reader.options), files

    def _file(self, path: Path) -> str:
        """Return the digest of a file, or of the names, sizes and times of a folder."""
        if path.is_dir():
            files = sorted(file for file in path.rglob("*") if file.is_file())
            stats = [(str(file.relative_to(path)), *_stat(file)) for file in files]
            return digest_of(stats)
        key = (str(path), *_stat(path))
        if key not in self._files:
            self._files[key] = sha256_of(path)
        return self._files[key]


def _is_checkpoint(value: Any) -> bool:
    return isinstance(value, dict) and "checkpoint" in value


def _stat(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns
