"""Data preparation: train tokenizers and write binary corpora from text files.

A prepared folder:

    prepared.json                 fingerprint of settings and files, report
    tokenizer.model               for both sides, or source.model and target.model,
                                  or source.model and target.symbols.json
    train/, valid/                corpora, see `shards/corpus.py`

Text is read twice: a sample of lines for the tokenizer, then all of it, in shards that worker
processes tokenize.  Test text is not prepared; it is read from its files for evaluation.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...specs.findings import InputError
from .corpora import fetched
from .folders import remove_leftover, resuming
from .readers import Parallel, Reading
from .shards.corpus import AGAIN, HEADER, Corpus
from .shards.merge_shards import gather
from .shards.shards import SHARD, Recipe, is_whole, pieces, shards_in
from .shards.workers import default_workers, give_back_memory, make_shards
from .symbols import SYMBOLS, Symbols, Vocabulary, count_symbols, open_symbols
from .text_files import count_lines, read_lines, refuse_unequal, resolve
from .tokenizer import Tokenizer, train_tokenizer
from .tokenizer_sample import sampled

if TYPE_CHECKING:
    from .settings import DataSettings, TokenizerSettings

FORMAT = 1
MARKER = "prepared.json"
Report = Callable[[str, int, int | None], None]
"""Called with the stage, the number of pairs done, and the total if it is known."""


@dataclass(frozen=True)
class Prepared:
    """Data ready for training."""

    folder: Path
    """The prepared folder."""
    source_tokenizer: Tokenizer
    """Tokenizer of the source side."""
    target_tokenizer: Vocabulary
    """Vocabulary of the target side; the same object when shared."""
    train: Corpus
    """Filtered training pairs."""
    valid: Corpus
    """All non-empty validation pairs."""
    report: dict[str, Any]
    """Pairs read, kept and dropped of `train` and `valid`; vocabulary sizes."""
    data: DataSettings
    """Settings that name the text files."""
    reading: Reading
    """Reader of the text files."""
    digest: str = ""
    """SHA-256 digest of the training pairs; empty if they were prepared by an older version."""

    def valid_text(self) -> tuple[list[str], list[str]]:
        """Return all validation lines, source and target, unprocessed."""
        pairs = list(self.reading.pairs(self.data.valid, self.data.root))
        return [left for left, _ in pairs], [right for _, right in pairs]


def prepare(
    data: DataSettings,
    tokenizer: TokenizerSettings,
    folder: str | Path,
    *,
    reading: Reading | None = None,
    report: Report | None = None,
    workers: int | None = None,
    log: Callable[[str], None] | None = None,
) -> Prepared:
    """Train the tokenizers and write the corpora, or open existing prepared data.

    Existing data is reused if it was prepared with the same settings from files
    with the same names, sizes and modification times; otherwise it is replaced.
    The folder is replaced only when the preparation is complete.  A killed call
    leaves `.NAME.work` next to the folder, and the next call resumes from it.

    Args:
        data: files and filter.
        tokenizer: kind and size.
        folder: output folder; it may contain only prepared data.
        reading: reader of the files; defaults to parallel text.
        report: called with the progress.
        workers: number of tokenizing processes; defaults to one per core.  The
            result does not depend on it.
        log: called with single lines of text.

    Raises:
        InputError: a file is missing or invalid, the sides do not align, the
            vocabulary size does not fit the text, no training pair is left, or the
            folder is damaged or contains something else.
    """
    folder, reader = Path(folder), reading or Parallel()
    progress, write_log = report or _ignore, log or _ignore
    if workers is not None and workers < 1:
        raise InputError(f"{workers} is not a valid number of workers", help="give 1 or more")
    for files in (data.train, data.valid, *data.test.values()):
        fetched(files, write_log)
    for files in data.test.values():  # fail now rather than after training
        for _ in reader.pairs(files, data.root):
            pass
    fingerprint = _fingerprint(data, tokenizer, reader)
    if (folder / MARKER).is_file():
        found = _read_marker(folder)
        if found["fingerprint"] == fingerprint:
            remove_leftover(folder)
            return _open(folder, found, data, reader)
        write_log(f"{folder}: text, settings or the format have changed; preparing the data again")
    with resuming(folder, MARKER, f"{fingerprint} {SHARD}", write_log) as (work, fresh):
        # Another process may have finished it while this one waited.
        if not _is_prepared(folder, fingerprint):
            count = workers or default_workers()
            _Preparation(data, tokenizer, reader, work, fresh, progress, count).run(fingerprint)
    return _open(folder, _read_marker(folder), data, reader)


def _ignore(*_: object) -> None:
    """Do nothing."""


def _is_prepared(folder: Path, fingerprint: str) -> bool:
    exists = (folder / MARKER).is_file()
    return exists and bool(_read_marker(folder)["fingerprint"] == fingerprint)


@dataclass(frozen=True)
class _Preparation:
    """One preparation, started from scratch or resumed."""

    data: DataSettings
    tokenizer: TokenizerSettings
    reader: Reading
    work: Path
    """Intermediate files, needed only to resume."""
    fresh: Path
    """Folder that becomes the prepared folder."""
    progress: Report
    workers: int

    def run(self, fingerprint: str) -> None:
        """Fill the `fresh` folder."""
        paths = {
            "train": self.reader.paths(self.data.train, self.data.root, self.work / "train"),
            "valid": self.reader.paths(self.data.valid, self.data.root, self.work / "valid"),
        }
        lines = {split: self._count(split, paths[split]) for split in paths}
        tokenizers = self._tokenizers(paths["train"], lines["train"])
        reports: dict[str, Any] = dict.fromkeys(paths)
        for split in ("valid", "train"):  # the short split first, to find its errors early
            reports[split] = self._binarize(split, paths[split], lines[split], tokenizers)
            _refuse_empty(split, reports[split])
        sizes = [each.vocab_size for each in tokenizers]
        reports["vocab_size"] = {"source": sizes[0], "target": sizes[1]}
        marker = {
            "format": FORMAT,
            "fingerprint": fingerprint,
            "shared": self._shared,
            "report": reports,
            "digest": _digest(self.fresh / "train"),
        }
        (self.fresh / MARKER).write_text(json.dumps(marker, indent=2) + "\n")

    @property
    def _shared(self) -> bool:
        """Whether both sides share one tokenizer."""
        return self.tokenizer.shared and self.tokenizer.target != "symbols"

    def _count(self, split: str, paths: list[tuple[Path, Path]]) -> list[int]:
        """Return the line count of each pair of files; both sides are counted in parallel."""
        note = self.work / f"{split}.lines"
        if note.is_file():
            return [int(each) for each in note.read_text().split()]
        counts: list[int] = []
        with ThreadPoolExecutor(2) as pool:
            for both in paths:
                left, right = pool.map(count_lines, both)
                refuse_unequal(both, (left, right))
                counts.append(left)
                if split == "train":
                    more = len(counts) < len(paths)
                    self.progress("count", sum(counts), None if more else sum(counts))
        _write_text(note, " ".join(map(str, counts)))
        return counts

    def _tokenizers(
        self, paths: list[tuple[Path, Path]], lines: list[int]
    ) -> tuple[Tokenizer, Vocabulary]:
        """Train on the training text and return the tokenizers of both sides."""
        total = sum(lines)

        def trained(name: str, groups: Sequence[tuple[Path, ...]]) -> Tokenizer:
            path = self.fresh / f"{name}.model"
            if path.is_file():
                return Tokenizer.open(path)
            text = sampled(
                groups,
                lines,
                self.tokenizer.sentences,
                lambda done: self.progress("tokenizer", done, total),
            )
            model = train_tokenizer(text, self.tokenizer, path)
            give_back_memory()
            return model

        if self._shared:
            both = trained("tokenizer", paths)
            return both, both
        source = trained("source", [(source,) for source, _ in paths])
        if self.tokenizer.target == "symbols":
            return source, self._symbols([target for _, target in paths], source)
        return source, trained("target", [(target,) for _, target in paths])

    def _symbols(self, paths: Sequence[Path], source: Tokenizer) -> Symbols:
        """Return the symbol vocabulary; other tokens are encoded by the source tokenizer."""
        path = self.fresh / SYMBOLS
        if not path.is_file():
            counts = count_symbols(line for each in paths for line in read_lines(each))
            symbols = self.reader.symbols(counts)
            has_others = len(symbols) < len(counts)
            path.write_bytes(Symbols(symbols, source if has_others else None).bytes)
        return open_symbols(path, source)

    def _binarize(
        self,
        split: str,
        paths: list[tuple[Path, Path]],
        lines: list[int],
        tokenizers: tuple[Tokenizer, Vocabulary],
    ) -> dict[str, Any]:
        """Tokenize, filter and write one split; return the filter's counts."""
        folder = self.fresh / split
        if (folder / HEADER).is_file():
            return Corpus.open(folder).report
        names = ["tokenizer.model"] * 2 if self._shared else ["source.model", "target.model"]
        if isinstance(tokenizers[1], Symbols):
            names[1] = SYMBOLS
        unique = split == "train" and self.data.filter.duplicates == "drop"
        recipe = Recipe(
            folder=self.work / f"{split}.shards",
            tokenizers=(self.fresh / names[0], self.fresh / names[1]),
            limits=self.data.filter,
            spare=split == "valid",
            hashes=unique,
        )
        recipe.folder.mkdir(exist_ok=True)
        sizes, total = shards_in(lines), sum(lines)
        done = {number for number in range(len(sizes)) if is_whole(recipe.path(number))}
        read = sum(sizes[number] for number in done)
        if done:
            self.progress(split, read, total)
        workers = max(1, min(self.workers, len(sizes) - len(done)))
        for piece in make_shards(recipe, pieces(paths, lines, done), workers):
            read += piece.pairs
            self.progress(split, read, total)
        many = len(sizes) > 1
        weights = self.data.train.weights if split == "train" else None
        counts = [len(shards_in([each])) for each in lines]
        count = gather(
            [recipe.path(number) for number in range(len(sizes))],
            folder,
            vocab_size=max(each.vocab_size for each in tokenizers),
            tokenizers={"source": tokenizers[0].digest, "target": tokenizers[1].digest},
            unique=unique,
            files=list(zip(counts, weights, strict=True)) if weights else (),
            tell=lambda pairs: self.progress(f"{split} corpus", pairs, total) if many else None,
        )
        shutil.rmtree(recipe.folder)
        return count.as_dict()


def _open(folder: Path, marker: dict[str, Any], data: DataSettings, reader: Reading) -> Prepared:
    """Open a prepared folder.

    Raises:
        InputError: a part is missing or damaged, or was made with another tokenizer.
    """
    source = Tokenizer.open(folder / f"{'tokenizer' if marker['shared'] else 'source'}.model")
    target: Vocabulary = source
    if (folder / SYMBOLS).is_file():
        target = open_symbols(folder / SYMBOLS, source)
    elif not marker["shared"]:
        target = Tokenizer.open(folder / "target.model")
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
        reading=reader,
        digest=str(marker.get("digest", "")),
    )


def _digest(folder: Path) -> str:
    """Return the SHA-256 digest of a corpus: the names and the contents of its files."""
    total = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        with path.open("rb") as file:
            total.update(
                f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode()
            )
    return total.hexdigest()


def _read_marker(folder: Path) -> dict[str, Any]:
    """Read `prepared.json`.

    Raises:
        InputError: it is damaged.
    """
    path = folder / MARKER
    try:
        marker: dict[str, Any] = json.loads(path.read_text())
        if not {"fingerprint", "shared", "report"} <= marker.keys():
            raise KeyError(MARKER)  # noqa: TRY301 - the handler below reports all damage
    except (OSError, ValueError, KeyError, AttributeError) as error:
        msg = f"{MARKER} is damaged"
        raise InputError(msg, place=str(path), help=AGAIN) from error
    return marker


def _fingerprint(data: DataSettings, tokenizer: TokenizerSettings, reader: Reading) -> str:
    """Return a hash of everything that determines the prepared data.

    Files enter by name, size and modification time, because reading 36 million
    pairs to detect changes would take minutes.

    Raises:
        InputError: a path leaves the root.
    """
    stats = {}
    for files in (data.train, data.valid):
        named = chain.from_iterable(fetched(files))
        known_as = {name: resolve(data.root, name) for name in files.names}
        for name, path in (known_as | {str(path): path for path in named}).items():
            if path.is_file():  # the reader reports a missing file and suggests similar names
                stat = path.stat()
                stats[name] = (stat.st_size, stat.st_mtime_ns)
    known: dict[str, Any] = {
        "format": FORMAT,
        "tokenizer": tokenizer.model_dump(mode="json"),
        "data": {
            "train": data.train.as_written(),
            "valid": data.valid.as_written(),
            "filter": data.filter.model_dump(mode="json"),
        },
        "files": stats,
    }
    if data.filter.duplicates == "keep":  # data prepared before this setting existed stays valid
        del known["data"]["filter"]["duplicates"]
    if reader.settings:
        known["reading"] = dict(reader.settings)
    if tokenizer.target in (None, "pieces"):
        del known["tokenizer"]["target"]
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()


def _refuse_empty(split: str, report: Mapping[str, Any]) -> None:
    """Raise if no pair of a split is left.

    Raises:
        InputError: no pair was kept.
    """
    if report["kept"] == 0:
        dropped = ", ".join(f"{number} {reason}" for reason, number in report["dropped"].items())
        raise InputError(
            f"none of the {report['read']} pairs of '{split}' is left"
            + (f": {dropped}" if dropped else ""),
            help="relax the filter, or check that the files are the right ones",
        )


def _write_text(path: Path, text: str) -> None:
    """Write a file atomically."""
    partial = path.with_suffix(".partial")
    partial.write_text(text)
    partial.replace(path)
