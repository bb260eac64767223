"""Files of a studio: one that is edited, and new files beside it."""

from __future__ import annotations

import contextlib
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from ....plugin import InputError, write_beside
from ....specs.load import FOLDERS
from ....specs.reader import LARGEST, RUN_FOLDER, SHIPPED, find, read_text
from ....specs.regular_files import path_in

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
"""Names of new files: they have no folders, and do not begin with a dot."""
_CRLF = "\r\n"


class ChangedError(InputError):
    """The file changed on disk since it was read."""


@dataclass(frozen=True, slots=True)
class OpenedFile:
    """The file of a studio."""

    path: Path
    extends: str
    """How a variant names it: a shipped name, or the name of the file."""
    writable: bool
    """Whether it can be saved: a shipped spec or a checkpoint cannot."""
    folder: Path
    """Where new files are written."""
    checkpoint: Path | None = None
    """The folder of a checkpoint, whose spec is only looked at."""

    def text(self) -> str:
        """Return the text on disk, whose lines end with line feeds alone, as in the page's editor.

        Raises:
            InputError: it cannot be read.
        """
        return _with_line_feeds(read_text(self.path))

    def beside(self) -> dict[Path, tuple[int, int]]:
        """Return when each file that the text may name was written, and its size."""
        stamps = {}
        for path in self.path.parent.glob("*.json"):
            with contextlib.suppress(OSError):
                stat = path.stat()
                stamps[path] = stat.st_mtime_ns, stat.st_size
        return stamps

    def save(self, text: str, expected: str) -> str:
        """Write a text with the line ends of the file, and return its digest.

        Args:
            text: the new text.
            expected: digest of the text that it replaces.

        Raises:
            ChangedError: the file on disk is another one by now.
            InputError: it is not writable.
        """
        if not self.writable:
            raise InputError(
                "this file belongs to weft or to a checkpoint",
                location=str(self.path),
                help="save it under another name",
            )
        if len(text.encode()) > LARGEST:
            raise InputError("the text is too long", location=str(self.path), help="shorten it")
        old = read_text(self.path) if self.path.exists() else None
        if old is not None and digest(_with_line_feeds(old)) != expected:
            raise ChangedError(
                "the file changed on disk",
                location=str(self.path),
                help="take the text on disk, or save over it",
            )
        written = text.replace("\n", _CRLF) if old is not None and _CRLF in old else text
        write_beside(self.path, written.encode(), "spec")
        return digest(text)

    def beside_this(self, name: str) -> Path:
        """Return the path of a new file beside this one.

        Raises:
            InputError: the name is not a simple one.
        """
        if not NAME.fullmatch(name):
            raise InputError(
                f"'{name}' is not a name for a file",
                location="name",
                help="use letters, digits, dots, hyphens and underscores",
            )
        return self.folder / f"{name}.json"

    def save_new(self, name: str, text: str) -> Path:
        """Write a new file beside this one, and return its path.

        Raises:
            InputError: the name is not a simple one, there is such a file, or it cannot be written.
        """
        path = self.beside_this(name)
        try:
            # Reserve the name first: two windows may save at once.
            with path.open("x", encoding="utf-8"):
                pass
        except FileExistsError as error:
            help_ = "choose another name"
            raise InputError(
                "there is such a file already", location=str(path), help=help_
            ) from error
        except OSError as error:
            problem = f"cannot write the file: {error.strerror}"
            raise InputError(problem, location=str(path), help="choose another folder") from error
        try:
            write_beside(path, text.encode(), "spec")
        except InputError:
            path.unlink(missing_ok=True)
            raise
        return path


def digest(text: str) -> str:
    """Return the digest of a text, to see whether a file changed."""
    return hashlib.sha256(text.encode()).hexdigest()


def opened(name: str) -> OpenedFile:
    """Return the file that a name stands for.

    Args:
        name: a spec or a run, by path or shipped name, or the folder of a checkpoint.

    Raises:
        InputError: there is no such file.
    """
    directory = Path(name)
    if directory.is_dir():
        spec = directory / "spec.json"
        if not spec.is_file():
            raise InputError(
                "this folder is no checkpoint: it has no spec.json",
                location=name,
                help="name a checkpoint, such as outputs/demo/averaged, or a spec",
            )
        path_in(directory, spec.name)
        return OpenedFile(
            spec, str(spec.resolve()), writable=False, folder=Path.cwd(), checkpoint=directory
        )
    path = find(name, *FOLDERS, RUN_FOLDER)
    if _is_checkpoint(path.parent):
        return opened(str(path.parent))
    if path.is_relative_to(SHIPPED):
        return OpenedFile(path, path.stem, writable=False, folder=Path.cwd())
    return OpenedFile(path, path.name, writable=True, folder=path.parent)


def _is_checkpoint(folder: Path) -> bool:
    """Return whether a folder is a checkpoint, of whose files its manifest has the digests."""
    weights = any((folder / name).exists() for name in ("weights.safetensors", "weights"))
    return weights and all((folder / name).is_file() for name in ("spec.json", "state.json"))


def _with_line_feeds(text: str) -> str:
    """Return a text whose lines end with line feeds alone."""
    return text.replace(_CRLF, "\n")
