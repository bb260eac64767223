"""Corpora by name: parallel text that the mtdata library knows where to fetch.

Each comes once into a folder of its own below the cache folder, as two files and a note of
their lines, bytes and SHA-256; the same names then mean the same text.  The library runs as
a command in an empty folder, because it would import files of its own name from the one
that it is called in.

Source: Gowda et al. 2021, Many-to-English Machine Translation Tools, Data, and Pretrained
Models, section 2.1, https://aclanthology.org/2021.acl-demo.37
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...specs.findings import InputError
from ..system.cache import cache_folder
from .folders import building

if TYPE_CHECKING:
    from .settings import Files

LIBRARY = "mtdata"
NOTE = "corpus.json"
BLOCK = 1 << 20
NO_NETWORK = re.compile(r"ConnectionError|Timeout|Max retries|NameResolution|unreachable")


def fetched(files: Files, log: Callable[[str], None] | None = None) -> list[tuple[Path, Path]]:
    """Return the source and target file of each named corpus; fetched where it is not there.

    Args:
        files: names, languages and, where they are given, digests.
        log: hears what is fetched.

    Raises:
        InputError: the library is missing, does not know a name, or cannot fetch it; or
            what came, or was kept, is not what it should be.
    """
    if files.languages is None:
        return []
    callback = log or (lambda _: None)
    found = []
    for name in files.mtdata:
        folder = cache_folder() / "corpora" / f"{name}.{'-'.join(files.languages)}"
        note = _kept(folder)
        if note is None:
            callback(f"fetching {name} through {LIBRARY}")
            note = _fetch(name, files.languages, folder)
            callback(f"{name}: {note['lines']:,} pairs in {folder}")
        wanted = files.digests.get(name)
        if wanted is not None and wanted != note["sha256"]:
            raise InputError(
                f"corpus '{name}' has another digest than the run says: {note['sha256']}",
                place=str(folder),
                help="delete the folder to fetch it again; if it stays so, the text has changed"
                " where it comes from: take the digest out of the run, or name files of your own",
            )
        found.append((folder / "source.txt", folder / "target.txt"))
    return found


def _kept(folder: Path) -> dict[str, Any] | None:
    """Return the note of a corpus that is there, or None.

    Raises:
        InputError: its files are not as long as they were.
    """
    try:
        note: dict[str, Any] = json.loads((folder / NOTE).read_text())
        sizes = [(folder / name).stat().st_size for name in ("source.txt", "target.txt")]
        whole = sizes == note["bytes"] and {"lines", "sha256"} <= note.keys()
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        whole = False
    if not whole:
        raise InputError(
            "a fetched corpus is damaged",
            place=str(folder),
            help="delete the folder, and it is fetched again",
        )
    return note


def _fetch(name: str, languages: tuple[str, str], folder: Path) -> dict[str, Any]:
    """Fetch one corpus, and return its note.

    Raises:
        InputError: that cannot be done.
    """
    if importlib.util.find_spec(LIBRARY) is None:
        raise InputError(
            f"corpus '{name}' needs the library {LIBRARY}, which is not installed",
            help="pip install 'weft[corpora]', or name files of your own by 'source' and 'target'",
        )
    with building(folder, NOTE) as fresh, tempfile.TemporaryDirectory(dir=folder.parent) as work:
        out = Path(work) / "out"
        _run(name, languages, Path(work), out)
        sides = [_side(out / "train-parts", name, language) for language in languages]
        for path, side in zip(sides, ("source", "target"), strict=True):
            path.replace(fresh / f"{side}.txt")
        paths = fresh / "source.txt", fresh / "target.txt"
        lines, digest = _looked_through(paths)
        if lines[0] != lines[1] or lines[0] == 0:
            raise InputError(
                f"corpus '{name}' came with {lines[0]} source lines for {lines[1]} target lines",
                help="fetch it again, or name another one",
            )
        note = {
            "name": name,
            "languages": languages,
            "lines": lines[0],
            "bytes": [path.stat().st_size for path in paths],
            "sha256": digest,
        }
        (fresh / NOTE).write_text(json.dumps(note, indent=2) + "\n")
    return note


def _run(name: str, languages: tuple[str, str], work: Path, out: Path) -> None:
    """Let the library fetch one corpus.

    Raises:
        InputError: it cannot.
    """
    pair = "-".join(languages)
    command = [sys.executable, "-m", LIBRARY, "get", "-l", pair, "-tr", name, "-o", str(out)]
    done = subprocess.run(
        [*command, "-j", "1"],
        cwd=work,
        env={
            **os.environ,
            "MTDATA": str(cache_folder() / LIBRARY),
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode == 0:
        return
    said = done.stderr.strip().splitlines() or ["it said nothing"]
    if NO_NETWORK.search(done.stderr):
        raise InputError(
            f"corpus '{name}' cannot be fetched: {said[-1][:300]}",
            help="repeat with a network; or copy its folder from a machine that has it into"
            f" {cache_folder() / 'corpora'}; or name files by 'source' and 'target'",
        )
    raise InputError(
        f"{LIBRARY} cannot give corpus '{name}': {said[-1][:300]}",
        help=f"'{LIBRARY} list -id -l {pair}' lists the names that it knows",
    )


def _side(folder: Path, name: str, language: str) -> Path:
    """Return the file of one language; `eng` is also that of `eng_US`.

    Raises:
        InputError: there is none.
    """
    files = {
        path.name.removeprefix(f"{name}."): path
        for path in folder.glob(f"{name}.*")
        if ".meta." not in path.name
    }
    plain = language.partition("_")[0]
    near = [tag for tag in files if tag.partition("_")[0] == plain]
    if language not in files and len(near) != 1:
        has = ", ".join(sorted(files)) or "none"
        raise InputError(
            f"corpus '{name}' has no language '{language}', but {has}",
            help="give 'languages' as codes of three letters, such as eng and deu",
        )
    return files[language if language in files else near[0]]


def _looked_through(paths: tuple[Path, Path]) -> tuple[list[int], str]:
    """Return the lines of both files, and the SHA-256 of one after the other."""
    digest, lines = hashlib.sha256(), []
    for path in paths:
        lines.append(0)
        with path.open("rb") as file:
            while block := file.read(BLOCK):
                digest.update(block)
                lines[-1] += block.count(b"\n")  # the library ends every line
    return lines, digest.hexdigest()
