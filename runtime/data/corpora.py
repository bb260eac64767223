"""Named corpora: parallel text that the mtdata library downloads.

Each corpus is fetched once into its own folder below the cache folder, as two files and a
record of their lines, bytes and SHA-256, so the same name always means the same text.  The
library runs as a command in an empty folder, because it would otherwise import modules from
the current folder that shadow its own.

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
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...specs.findings import InputError
from ..system.cache import cache_folder
from .folders import building

LIBRARY = "mtdata"
NOTE = "corpus.json"
BLOCK = 1 << 20
NO_NETWORK = re.compile(r"ConnectionError|Timeout|Max retries|NameResolution|unreachable")


def fetched(
    names: Sequence[str],
    languages: tuple[str, str],
    digests: Mapping[str, str],
    log: Callable[[str], None] | None = None,
) -> list[tuple[Path, Path]]:
    """Return the source and target file of each named corpus, fetching missing ones.

    Args:
        names: names of the corpora.
        languages: source and target language.
        digests: required SHA-256 of corpora, by name.
        log: called with a message for each corpus that is fetched.

    Raises:
        InputError: the library is missing, does not know a name, or cannot fetch it; or
            the fetched or cached text does not have the expected content.
    """
    write_log = log or (lambda _: None)
    pairs = []
    for name in names:
        folder = cache_folder() / "corpora" / f"{name}.{'-'.join(languages)}"
        note = _kept(folder)
        if note is None:
            write_log(f"fetching {name} through {LIBRARY}")
            note = _fetch(name, languages, folder)
            write_log(f"{name}: {note['lines']:,} pairs in {folder}")
        expected = digests.get(name)
        if expected is not None and expected != note["sha256"]:
            raise InputError(
                f"corpus '{name}' does not have the digest given in the run, but {note['sha256']}",
                location=str(folder),
                help="delete the folder to fetch it again; if the digest still differs, the text"
                " has changed at its origin: remove the digest from the run, or use your own files",
            )
        pairs.append((folder / "source.txt", folder / "target.txt"))
    return pairs


def _kept(folder: Path) -> dict[str, Any] | None:
    """Return the record of a cached corpus, or None if there is none.

    Raises:
        InputError: its files do not have the recorded sizes.
    """
    try:
        note: dict[str, Any] = json.loads((folder / NOTE).read_text())
        sizes = [(folder / name).stat().st_size for name in ("source.txt", "target.txt")]
        is_intact = sizes == note["bytes"] and {"lines", "sha256"} <= note.keys()
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        is_intact = False
    if not is_intact:
        raise InputError(
            "a fetched corpus is damaged",
            location=str(folder),
            help="delete the folder to fetch the corpus again",
        )
    return note


def _fetch(name: str, languages: tuple[str, str], folder: Path) -> dict[str, Any]:
    """Fetch one corpus and return its record.

    Raises:
        InputError: the corpus cannot be fetched.
    """
    if importlib.util.find_spec(LIBRARY) is None:
        raise InputError(
            f"corpus '{name}' needs the library {LIBRARY}, which is not installed",
            help="pip install 'weft[corpora]', or give your own files as 'source' and 'target'",
        )
    with building(folder, NOTE) as fresh, tempfile.TemporaryDirectory(dir=folder.parent) as work:
        out = Path(work) / "out"
        _run(name, languages, Path(work), out)
        sides = [_side(out / "train-parts", name, language) for language in languages]
        for path, side in zip(sides, ("source", "target"), strict=True):
            path.replace(fresh / f"{side}.txt")
        paths = fresh / "source.txt", fresh / "target.txt"
        lines, digest = _count_and_hash(paths)
        if lines[0] != lines[1] or lines[0] == 0:
            raise InputError(
                f"corpus '{name}' has {lines[0]} source lines but {lines[1]} target lines",
                help="fetch it again, or use another corpus",
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
    """Fetch one corpus with the library.

    Raises:
        InputError: the library failed.
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
    output = done.stderr.strip().splitlines() or ["no error output"]
    if NO_NETWORK.search(done.stderr):
        raise InputError(
            f"corpus '{name}' cannot be fetched: {output[-1][:300]}",
            help="try again with a network connection; or copy its folder from a machine that"
            f" has it into {cache_folder() / 'corpora'}; or give files as 'source' and 'target'",
        )
    raise InputError(
        f"{LIBRARY} cannot fetch corpus '{name}': {output[-1][:300]}",
        help=f"'{LIBRARY} list -id -l {pair}' lists the known names",
    )


def _side(folder: Path, name: str, language: str) -> Path:
    """Return the file of one language; `eng` also matches `eng_US`.

    Raises:
        InputError: there is no such file.
    """
    files = {
        path.name.removeprefix(f"{name}."): path
        for path in folder.glob(f"{name}.*")
        if ".meta." not in path.name
    }
    base_language = language.partition("_")[0]
    near = [tag for tag in files if tag.partition("_")[0] == base_language]
    if language not in files and len(near) != 1:
        has = ", ".join(sorted(files)) or "none"
        raise InputError(
            f"corpus '{name}' has no language '{language}'; available: {has}",
            help="give 'languages' as three-letter codes, such as eng and deu",
        )
    return files[language if language in files else near[0]]


def _count_and_hash(paths: tuple[Path, Path]) -> tuple[list[int], str]:
    """Return the line counts of both files, and the SHA-256 of their concatenation."""
    digest, lines = hashlib.sha256(), []
    for path in paths:
        lines.append(0)
        with path.open("rb") as file:
            while block := file.read(BLOCK):
                digest.update(block)
                lines[-1] += block.count(b"\n")  # the library ends every line with a line feed
    return lines, digest.hexdigest()
