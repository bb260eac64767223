"""Targets of `weft export`: settings that write a checkpoint for another engine or library.

Packages add targets through the entry-point group `weft.exporters`.  A folder is written
atomically: it is complete, or not there at all.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from ...graphs.ir.canonical import fingerprint
from ...graphs.ir.graph import Graph
from ...specs.findings import InputError, did_you_mean
from ..system import folders
from ..system.plugins import Named, Plugins

if TYPE_CHECKING:
    from ...graphs.ir.block_type import BlockType
    from .checkpoint import Checkpoint

MARKER = "weft.json"
"""File that records the origin of an export; a folder with this file may be replaced."""


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """Yield a temporary folder, and rename it to `out` if the block succeeds.

    Args:
        out: final path; an existing folder must be empty or an older export.

    Raises:
        InputError: the path exists and is not an export, or it cannot be written.
    """
    out = out.resolve()
    if out.exists() and not _ours(out):
        raise InputError(
            "the folder exists and is not an export",
            location=str(out),
            help="choose a new folder, or empty this one",
        )
    try:
        with folders.new_folder(out) as partial:
            yield partial
    except OSError as error:
        raise InputError(
            f"cannot write the export: {error.strerror or error}",
            location=str(out),
            help="choose a writable folder on a disk with free space",
        ) from error


def _ours(folder: Path) -> bool:
    """Return whether a folder is empty or marked as an export."""
    if not folder.is_dir() or not any(folder.iterdir()):
        return folder.is_dir()
    try:
        marker = json.loads((folder / MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(marker, dict) and {"target", "fingerprint"} <= marker.keys()


def write_marker(folder: Path, graph: Graph, target: str, more: Mapping[str, Any]) -> None:
    """Write the marker file with the origin of an export.

    Args:
        folder: export folder.
        graph: the exported graph.
        target: name of the engine.
        more: settings, and results of the check.
    """
    value = {
        "target": target,
        "spec": graph.name,
        "fingerprint": fingerprint(graph),
        "weft": version("weft"),
        **more,
    }
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    (folder / MARKER).write_text(text, encoding="utf-8")


class ExportReport(Protocol):
    """What was compared after a checkpoint was written."""

    @property
    def report(self) -> str:
        """The outcome as text."""


class Exporter(Named):
    """Base class of a target; its fields are the settings and options that it accepts."""

    flags: ClassVar[Mapping[str, str]] = {}
    """Field to its option of `weft export`; by default, `top_k` is `--top-k`."""
    page: ClassVar[str] = "README.md"
    """Where the use of the folder is described, such as the name of a file in it."""

    @abstractmethod
    def write(self, checkpoint: Checkpoint, folder: Path) -> ExportReport:
        """Write a checkpoint, and check that what was written computes the same.

        Args:
            checkpoint: the checkpoint of a model; LoRA is not merged.
            folder: the folder to write; an older export there is replaced.

        Raises:
            InputError: the model cannot be expressed, the folder has other contents, or the outputs
                differ; in that case nothing is written.
        """


EXPORTERS: Plugins[Exporter] = Plugins(
    "export target",
    "weft.exporters",
    Exporter,  # type: ignore[type-abstract]  # plug-ins are subclasses of it
    {},
    __package__,
)
"""All targets; `EXPORTERS.parse("onnx", place)` returns one."""


def targets_with(name: str) -> list[str]:
    """Return the targets that accept a setting."""
    return [to for to, form in EXPORTERS.forms().items() if name in form.model_fields]


def export(
    checkpoint: str | Path,
    to: str,
    out: str | Path,
    *,
    blocks: Iterable[BlockType] = (),
    **settings: Any,
) -> ExportReport:
    """Write a checkpoint for another engine or library, and check that the outputs agree.

    Args:
        checkpoint: a checkpoint folder, such as `outputs/demo/averaged`.
        to: the target: `ctranslate2`, `huggingface`, `onnx`, `peft`, or one that an installed
            package adds; docs/exporting.md says what each needs.
        out: the folder to write; an older export there is replaced.
        blocks: block types that the model uses besides the installed ones.
        **settings: settings of the target, such as `quantization="int8"` for `ctranslate2`.

    Returns:
        The difference between the outputs of both.

    Raises:
        InputError: there is no such target or setting, the checkpoint is incomplete, a node has no
            counterpart, the folder has other contents, or the outputs differ; in that case nothing
            is written.
    """
    from .checkpoint import open_deployed

    if not isinstance(checkpoint, str | Path):
        raise InputError(
            f"an object of type {type(checkpoint).__name__} is not a checkpoint folder",
            location="checkpoint",
            help="write one first: weft.Model.from_module(module, spec, tokenizers).save(folder)",
        )
    fields = EXPORTERS.find(to).model_fields
    options = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in settings.items()
        if value is not None
    }
    for name in options:
        if name not in fields:
            others = " or ".join(f"'{other}'" for other in targets_with(name))
            help_ = f"leave it out, or export to {others}" if others else did_you_mean(name, fields)
            raise InputError(f"'{name}' has no effect on '{to}'", help=help_ or "leave it out")
    exporter = EXPORTERS.parse({"type": to, **options}, "")
    return exporter.write(open_deployed(checkpoint, blocks), Path(out))
