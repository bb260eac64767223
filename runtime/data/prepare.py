"""Preparing data: text files to tokenizers and binary corpora, once.

A prepared folder:

    prepared.json                 fingerprint of settings and files, report
    tokenizer.model               of both sides, or source.model and target.model
    train/, valid/                corpora, see `corpus.py`

Test text is not written: it is read from its files when it is measured.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...specs.findings import InputError, did_you_mean
from .corpus import AGAIN, Corpus, CorpusWriter
from .filters import FilterCount
from .folders import building
from .text import read_parallel, resolve
from .tokenizer import Tokenizer, train_tokenizer

if TYPE_CHECKING:
    from .settings import DataSettings, Files, TokenizerSettings

FORMAT = 1
MARKER = "prepared.json"
CHUNK = 10_000
"""Pairs tokenized at a time."""

Report = Callable[[str, int, int | None], None]
"""Called with the stage, pairs done, and pairs in all where known."""


@dataclass(frozen=True)
class Prepared:
    """Data ready for training."""

    folder: Path
    """Where it is."""
    source_tokenizer: Tokenizer
    """Of the source side."""
    target_tokenizer: Tokenizer
    """Of the target side; the same object when shared."""
    train: Corpus
    """Filtered training pairs."""
    valid: Corpus
    """Every validation pair that is not empty."""
    report: dict[str, Any]
    """Pairs read, kept and dropped of `train` and `valid`; vocabulary sizes."""
    data: DataSettings
    """Where the text is."""

    def valid_text(self) -> tuple[list[str], list[str]]:
        """Return every validation line, source and target, as the files have them."""
        return _text(self.data.valid, self.data.root)

    def test_text(self, name: str) -> tuple[list[str], list[str]]:
        """Return every line of a test set, source and target, as the files have them.

        Raises:
            InputError: there is no test set of that name.
        """
        if name not in self.data.test:
            msg = f"no test set '{name}'"
            raise InputError(msg, help=did_you_mean(name, self.data.test))
        return _text(self.data.test[name], self.data.root)


def prepare(
    data: DataSettings,
    tokenizer: TokenizerSettings,
    folder: str | Path,
    *,
    report: Report | None = None,
) -> Prepared:
    """Train the tokenizers and write the corpora, or open what was made before.

    What is there is opened when it was made with the same settings from files
    of the same names, sizes and times, and is replaced otherwise.  The folder
    changes only when all is done.

    Args:
        data: files and filter.
        tokenizer: kind and size.
        folder: where to write; nothing else may be in it.
        report: hears of progress.

    Raises:
        InputError: a file is missing or bad, the sides do not align, the
            vocabulary does not fit the text, no training pair is left, or the
            folder is damaged or not ours.
    """
    folder = Path(folder)
    seen: dict[str, int] = {}

    def tell(stage: str, done: int, total: int | None) -> None:
        seen[stage] = done
        if report is not None:
            # The first pass over the training text counts for the later ones.
            report(stage, done, seen.get("tokenizer") if stage == "train" else total)

    for files in data.test.values():  # better now than after training
        for _ in read_parallel(files, data.root):
            pass
    fingerprint = _fingerprint(data, tokenizer)
    if (folder / MARKER).is_file():
        found = _read_marker(folder)
        if found["fingerprint"] == fingerprint:
            return _open(folder, found, data)
    with building(folder, MARKER) as fresh:
        tokenizers = _train_tokenizers(data, tokenizer, fresh, tell)
        counts = {
            "train": _binarize(data.train, data, tokenizers, fresh / "train", tell),
            "valid": _binarize(data.valid, data, tokenizers, fresh / "valid", tell, spare=True),
        }
        for split, count in counts.items():
            _refuse_empty(split, count)
        marker = {
            "format": FORMAT,
            "fingerprint": fingerprint,
            "shared": tokenizer.shared,
            "report": {
                **{split: count.as_dict() for split, count in counts.items()},
                "vocab_size": {
                    "source": tokenizers[0].vocab_size,
                    "target": tokenizers[1].vocab_size,
                },
            },
        }
        (fresh / MARKER).write_text(json.dumps(marker, indent=2) + "\n")
    return _open(folder, _read_marker(folder), data)


def _train_tokenizers(
    data: DataSettings, settings: TokenizerSettings, folder: Path, tell: Report
) -> tuple[Tokenizer, Tokenizer]:
    """Train on the training text and return the tokenizers of both sides."""
    pairs = _counted(read_parallel(data.train, data.root), "tokenizer", tell)
    if settings.shared:
        lines = chain.from_iterable(pairs)
        both = train_tokenizer(lines, settings, folder / "tokenizer.model")
        return both, both
    source = train_tokenizer((left for left, _ in pairs), settings, folder / "source.model")
    pairs = _counted(read_parallel(data.train, data.root), "tokenizer", tell)
    target = train_tokenizer((right for _, right in pairs), settings, folder / "target.model")
    return source, target


def _binarize(
    files: Files,
    data: DataSettings,
    tokenizers: tuple[Tokenizer, Tokenizer],
    folder: Path,
    tell: Report,
    *,
    spare: bool = False,
) -> FilterCount:
    """Tokenize, filter and write one split.

    Args:
        files: its text.
        data: root and filter.
        tokenizers: of source and target.
        folder: where to write; its name is the stage that is told.
        tell: hears of progress.
        spare: keep all but empty pairs.
    """
    count, limits = FilterCount(), data.filter
    pairs = _counted(read_parallel(files, data.root), folder.name, tell)
    with CorpusWriter(
        folder,
        vocab_size=max(each.vocab_size for each in tokenizers),
        tokenizers={"source": tokenizers[0].digest, "target": tokenizers[1].digest},
    ) as writer:
        while chunk := list(islice(pairs, CHUNK)):
            sources, targets = zip(*chunk, strict=True)
            for source, target in zip(
                tokenizers[0].encode_many(sources),
                tokenizers[1].encode_many(targets),
                strict=True,
            ):
                if count.keep(len(source), len(target), limits, only_empty=spare):
                    writer.add(source, target)
        writer.report = count.as_dict()
    return count


def _open(folder: Path, marker: dict[str, Any], data: DataSettings) -> Prepared:
    """Open a prepared folder.

    Raises:
        InputError: a part is missing, damaged, or of another tokenizer.
    """
    names = ("tokenizer",) if marker["shared"] else ("source", "target")
    tokenizers = [Tokenizer.open(folder / f"{name}.model") for name in names]
    source, target = tokenizers[0], tokenizers[-1]
    corpora = {split: Corpus.open(folder / split) for split in ("train", "valid")}
    for corpus in corpora.values():
        if corpus.header["tokenizers"] != {"source": source.digest, "target": target.digest}:
            msg = "corpus was made with another tokenizer"
            raise InputError(msg, place=str(corpus.folder), help=AGAIN)
    return Prepared(
        folder=folder,
        source_tokenizer=source,
        target_tokenizer=target,
        train=corpora["train"],
        valid=corpora["valid"],
        report=marker["report"],
        data=data,
    )


def _read_marker(folder: Path) -> dict[str, Any]:
    """Read `prepared.json`.

    Raises:
        InputError: it is damaged.
    """
    path = folder / MARKER
    try:
        marker: dict[str, Any] = json.loads(path.read_text())
        if not {"fingerprint", "shared", "report"} <= marker.keys():
            raise KeyError(MARKER)  # noqa: TRY301 - all damage is reported in one place
    except (OSError, ValueError, KeyError, AttributeError) as error:
        msg = f"{MARKER} is damaged"
        raise InputError(msg, place=str(path), help=AGAIN) from error
    return marker


def _fingerprint(data: DataSettings, tokenizer: TokenizerSettings) -> str:
    """Return a hash of all that decides what is written.

    Files count by name, size and time of last change: reading 36 million pairs
    to see whether they changed would take minutes.

    Raises:
        InputError: a file leaves the root.
    """
    stats = {}
    for name in (*data.train.source, *data.train.target, *data.valid.source, *data.valid.target):
        path = resolve(data.root, name)
        if path.is_file():  # a missing one is refused when it is read, with its neighbors
            stat = path.stat()
            stats[name] = (stat.st_size, stat.st_mtime_ns)
    known = {
        "format": FORMAT,
        "tokenizer": tokenizer.model_dump(mode="json"),
        "data": data.model_dump(mode="json", include={"train", "valid", "filter"}),
        "files": stats,
    }
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()


def _refuse_empty(split: str, count: FilterCount) -> None:
    """Refuse a split of which nothing is left.

    Raises:
        InputError: no pair was kept.
    """
    if count.kept == 0:
        dropped = ", ".join(f"{number} {reason}" for reason, number in count.dropped.items())
        raise InputError(
            f"no pair of '{split}' is left of {count.read}" + (f": {dropped}" if dropped else ""),
            help="loosen the filter, or look whether the files are the right ones",
        )


def _counted(
    pairs: Iterator[tuple[str, str]], stage: str, tell: Report
) -> Iterator[tuple[str, str]]:
    """Yield the pairs and tell how many went by, every CHUNK and at the end."""
    done = 0
    for done, pair in enumerate(pairs, start=1):
        yield pair
        if done % CHUNK == 0:
            tell(stage, done, None)
    tell(stage, done, done)


def _text(files: Files, root: str) -> tuple[list[str], list[str]]:
    """Return all lines of both sides."""
    pairs = list(read_parallel(files, root))
    return [left for left, _ in pairs], [right for _, right in pairs]
