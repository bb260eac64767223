"""The manifest of prepared data: what it was made with, and the objects of each of its files.

It has no time, no path of a machine and no account, so the same text and settings give the same
manifest everywhere.  Its name is the SHA-256 of its content, which names everything else.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from ....specs.findings import InputError
from .stores import Store

MANIFEST = "prepared.json"
"""Name of the manifest in a prepared folder."""
PIECE = 32 << 20
"""Bytes of an object; a file is cut into them, and its last one may have fewer."""
LARGEST_MANIFEST = 64 << 20
"""Maximum bytes of a manifest; 10^9 pairs need about 1 MB."""
INNER = ("train", "valid", "files")
"""Folders of a prepared folder: tables, and the files of other splits than `train`."""
_TOP = re.compile(r"\w[\w.-]*")


def _inside(name: str) -> str:
    """Return the name of a file in a prepared folder.

    Raises:
        ValueError: the file would be elsewhere, or would replace one of another kind.
    """
    parts = name.split("/")
    ordinary = all(part.isprintable() and part.strip(".") and "\\" not in part for part in parts)
    inner = len(parts) > 1 and parts[0] in INNER
    top = len(parts) == 1 and name != MANIFEST and _TOP.fullmatch(name)
    if not (ordinary and (inner or top)):
        msg = "not the name of a file of prepared data"
        raise ValueError(msg)
    return name


Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Piece = tuple[Digest, Annotated[int, Field(gt=0, le=PIECE)]]
"""SHA-256 and bytes of an object."""


class SplitReport(BaseModel):
    """Rows of a split: those read, kept, and dropped by reason."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)

    read: int
    retained: int = Field(alias="kept")
    dropped: dict[str, int]


class PreparationReport(BaseModel):
    """What the preparation did."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    train: SplitReport
    valid: SplitReport
    vocab_size: dict[str, int]
    """Vocabulary sizes by text column."""


class PreparedManifest(BaseModel):
    """What prepared data is, and where its bytes are."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    format: Literal[1] = 1
    settings: dict[str, Any]
    """Settings of the run that determine the data."""
    report: PreparationReport
    digest: Digest
    """SHA-256 of the training table; see `prepare.folder_digest`."""
    files: dict[Annotated[str, AfterValidator(_inside)], tuple[Piece, ...]]
    """The objects of each file, in order."""

    def inside(self, folder: str = "") -> dict[str, tuple[Piece, ...]]:
        """Return the objects of each file, of all files or of those in one folder."""
        start = f"{folder}/" if folder else ""
        return {name: pieces for name, pieces in self.files.items() if name.startswith(start)}

    def content(self) -> bytes:
        """Return the manifest as it is stored."""
        return json.dumps(self.model_dump(mode="json", by_alias=True), sort_keys=True).encode()


def object_name(digest: str) -> str:
    """Return the name of an object in its store."""
    return f"objects/{digest[:2]}/{digest}"


def manifest_name(digest: str) -> str:
    """Return the name of a manifest in its store."""
    return f"{digest}.json"


def read_object(store: Store, name: str, digest: str, size: int, *, exact: bool = True) -> bytes:
    """Return an object of a store, compared with its digest.

    Args:
        store: the store.
        name: name of the object.
        digest: its SHA-256.
        size: its bytes.
        exact: whether it has this many bytes; otherwise at most.

    Raises:
        InputError: it cannot be read, or is another one.
    """
    content = store.read(name, size)
    if exact and len(content) != size:
        problem = f"'{name}' has not {size:,} bytes, as its manifest says"
    elif hashlib.sha256(content).hexdigest() != digest:
        problem = f"'{name}' does not have the SHA-256 {digest}"
    else:
        return content
    raise InputError(
        f"the prepared data is damaged: {problem}",
        location=store.address,
        help=f"remove '{name}' there, and run 'weft prepare RUN --to' again where the text is",
    )


def read_manifest(store: Store, digest: str) -> PreparedManifest:
    """Return a manifest of a store.

    Raises:
        InputError: it is missing, damaged, or of another version of Weft.
    """
    name = manifest_name(digest)
    return parsed(
        read_object(store, name, digest, LARGEST_MANIFEST, exact=False), store.address, name
    )


def parsed(content: bytes, location: str, name: str) -> PreparedManifest:
    """Return the manifest in a file.

    Raises:
        InputError: it is not one that this version reads.
    """
    try:
        return PreparedManifest.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        at = "/".join(map(str, first["loc"]))
        raise InputError(
            f"'{name}' is not a manifest that this version reads: {at}: {first['msg']}",
            location=location,
            help="use the version of Weft that wrote it, or prepare the data again",
        ) from error
