"""Preparation of one table: train tokenizers, learn classes, and write the arrays of each split.

Text columns are read twice: a sample of lines for the tokenizers, then all of them, in shards
that worker processes tokenize.  The other columns are read once more, row by row, and only the
rows that the filter keeps are encoded.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice, zip_longest
from random import Random
from typing import TYPE_CHECKING, Any

from ...specs.findings import InputError
from ..system.executors.executor import On
from ..system.executors.units import Watch
from ..system.memory import give_back_memory
from .columns.registry import columns_of
from .columns.text import RAW, TextColumn
from .columns.values import number_of, text_of
from .readers.lines import refuse_unequal
from .readers.split import reader_of
from .records import add_record, array_fields, fields_of, fit_column, placed, unseen_in
from .settings import SymbolSettings
from .shards.corpus import HEADER, Corpus, CorpusWriter
from .shards.filters import FilterCount
from .shards.making import make_shards
from .shards.merge_shards import ShardLayout, gather
from .shards.shards import ShardRecipe, Side, is_whole, pieces, shards_in
from .symbols import Vocabulary
from .table import array_name
from .text_files import count_lines, decode, raw_lines
from .vocabularies import file_of, make_vocabulary, write_file

if TYPE_CHECKING:
    from pathlib import Path

    from .columns.column import Column
    from .readers.reader import Reader, Record
    from .table_settings import DataSettings, Tokenizers

BLOCK = 10_000
"""Pairs per block; a fixed share of lines is drawn from each block."""


def sampled(
    paths: Sequence[tuple[Path, ...]],
    lines: Sequence[int],
    most: int,
    tell: Callable[[int], None],
    *,
    escaped: bool = False,
) -> Iterator[str]:
    """Yield all lines, or a random sample of `most` lines, in file order with sides alternating.

    Each block of pairs contributes its share, drawn by a generator that is seeded with the
    block number: the same files give the same lines.

    Args:
        paths: groups of files that are read in parallel.
        lines: number of lines in each file, per group.
        most: maximum number of lines to yield.
        tell: progress callback, called with the number of lines done per side.
        escaped: whether each line is a JSON string.

    Raises:
        InputError: a file cannot be read, or a sampled line is not UTF-8.
    """
    total = sum(len(group) * count for group, count in zip(paths, lines, strict=True))
    most = min(most, total)
    block = consumed = done = 0
    for group, count in zip(paths, lines, strict=True):
        sides = [raw_lines(path) for path in group]
        for start in range(0, count, BLOCK):
            pairs = min(BLOCK, count - start)
            size = pairs * len(group)
            share = most * (consumed + size) // total - most * consumed // total
            every = share == size
            chosen = set() if every else set(Random(block).sample(range(size), share))
            rows = zip_longest(*(islice(side, pairs) for side in sides), fillvalue=b"")
            for row, raws in enumerate(rows):
                for side, raw in enumerate(raws):
                    if every or row * len(group) + side in chosen:
                        line = start + row + 1
                        yield json.loads(raw) if escaped else decode(raw, group[side], line)
            block, consumed, done = block + 1, consumed + size, done + pairs
            tell(done)


Report = Callable[[str, int, int | None], None]
"""Called with the stage, the number of rows done, and the total if it is known."""
TELL = 10_000
"""Rows between reports of progress."""


@dataclass(frozen=True, slots=True)
class _Texts:
    """Text files of a split, aligned line by line."""

    paths: list[tuple[Path, ...]]
    """For each part, the file of each text column."""
    counts: list[int]
    """Lines of each part."""
    escaped: bool
    """Whether each line is a JSON string."""


@dataclass(frozen=True)
class Preparation:
    """One preparation, started from scratch or resumed."""

    data: DataSettings
    tokenizers: Tokenizers
    work: Path
    """Intermediate files, needed only to resume."""
    fresh: Path
    """Folder that becomes the prepared folder."""
    progress: Report
    processes: int | None
    on: On = "local"
    watch: Watch | None = None

    def run(self) -> dict[str, Any]:
        """Fill the `fresh` folder; return the report.

        Raises:
            InputError: a file is missing or invalid, or no row of a split is left.
        """
        texts = {split: self._texts(split) for split in self.splits} if self.names else {}
        files = self._fit()
        vocabularies = self._vocabularies(texts["train"]) if texts else {}
        reports: dict[str, Any] = dict.fromkeys(self.splits)
        for split in ("valid", "train"):  # the short split first, to find its errors early
            columns = columns_of(self.data.columns, vocabularies, files)
            reports[split] = self._written(split, columns, texts.get(split))
            self._refuse_empty(split, reports[split])
        used = {name: self._text(name).settings.tokenizer for name in self.names}
        reports["vocab_size"] = {
            name: vocabularies[tokenizer].vocab_size for name, tokenizer in used.items()
        }
        return reports

    @cached_property
    def splits(self) -> dict[str, Reader]:
        """Readers of the splits."""
        by_name = {"train": self.data.train, "valid": self.data.valid}
        return {name: reader_of(split, self.data.root) for name, split in by_name.items()}

    @cached_property
    def columns(self) -> dict[str, Column]:
        """Columns without tokenizers and classes."""
        return columns_of(self.data.columns, {})

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the text columns."""
        return tuple(name for name, column in self.columns.items() if column.has_text)

    def _text(self, name: str) -> TextColumn:
        column = self.columns[name]
        if not isinstance(column, TextColumn):
            msg = f"column '{name}' has texts but is not a TextColumn"
            raise TypeError(msg)
        return column

    def _records(self, split: str, columns: Mapping[str, Column]) -> Iterator[Record]:
        """Yield the records of all parts of a split with the fields of some columns."""
        reader, fields = self.splits[split], fields_of(columns)
        return chain.from_iterable(reader.records(n, fields) for n in range(reader.parts()))

    def _texts(self, split: str) -> _Texts:
        """Return aligned files of the text columns, writing them if the reader has none."""
        reader = self.splits[split]
        columns = {name: self.columns[name] for name in self.names}
        note = self.work / f"{split}.lines"
        counts = [int(count) for count in note.read_text().split()] if note.is_file() else None
        paths = reader.lines([column.field for column in columns.values()])
        if paths is not None:
            every = reader.lines([column.field for column in self.columns.values()]) or []
            if counts is None:
                counts = self._count(split, every)
        else:
            folder = self.work / split
            paths = [
                tuple(folder / f"{part}.{name}" for name in self.names)
                for part in range(reader.parts())
            ]
            if counts is None:
                folder.mkdir(exist_ok=True)
                counts = [self._spool(split, n, columns, part) for n, part in enumerate(paths)]
        write_file(note, " ".join(map(str, counts)).encode())
        return _Texts(paths, counts, escaped=reader.lines([]) is None)

    def _count(self, split: str, paths: Sequence[tuple[Path, ...]]) -> list[int]:
        """Return the line count of each group of files, which are counted in parallel."""
        counts: list[int] = []
        fields = [column.field for column in self.columns.values()]
        with ThreadPoolExecutor(2) as pool:
            for group in paths:
                line_counts = list(pool.map(count_lines, group))
                refuse_unequal(group, fields, line_counts)
                counts.append(line_counts[0])
                if split == "train":
                    more = len(counts) < len(paths)
                    self.progress("count", sum(counts), None if more else sum(counts))
        return counts

    def _spool(
        self, split: str, part: int, columns: Mapping[str, Column], paths: tuple[Path, ...]
    ) -> int:
        """Write the texts of one part as JSON strings, one on each line; return their number."""
        count = 0
        files = [path.open("w", encoding="ascii", newline="\n") for path in paths]
        try:
            for record in self.splits[split].records(part, fields_of(columns)):
                for (name, column), file in zip(columns.items(), files, strict=True):
                    text = placed(record, lambda: text_of(record.values[column.field], name))  # noqa: B023
                    file.write(json.dumps(text) + "\n")
                count += 1
                if count % TELL == 0 and split == "train":
                    self.progress("read", count, None)
        finally:
            for file in files:
                file.close()
        return count

    def _fit(self) -> dict[str, bytes]:
        """Let columns learn from the training values, such as their classes; return their files."""
        contents: dict[str, bytes] = {}
        for name, column in self.columns.items():
            if not column.fits:
                continue
            note = self.work / f"{name}.fitted"
            if not note.is_file():
                fit_column(column, self._records("train", {name: column}))
                files = column.files()
                for file, content in files.items():
                    write_file(self.fresh / file, content)
                write_file(note, json.dumps(sorted(files)).encode())
            contents |= {
                file: (self.fresh / file).read_bytes() for file in json.loads(note.read_text())
            }
        return contents

    def _vocabularies(self, texts: _Texts) -> dict[str, Vocabulary]:
        """Train on the training text and return the tokenizers by name."""
        total = sum(texts.counts)
        order = sorted(
            self.tokenizers, key=lambda name: isinstance(self.tokenizers[name], SymbolSettings)
        )
        for name in order:
            users = self._users(name)
            groups = [tuple(paths[n] for n in users) for paths in texts.paths]

            def text(most: int | None, groups: list[tuple[Path, ...]] = groups) -> Iterator[str]:
                return sampled(
                    groups,
                    texts.counts,
                    total * len(groups[0]) if most is None else most,
                    lambda done: self.progress("tokenizer", done, total),
                    escaped=texts.escaped,
                )

            file = file_of(self.fresh, name, self.tokenizers)
            make_vocabulary(file, self.tokenizers[name], self.data.root, text)
        give_back_memory()
        return {name: file_of(self.fresh, name, self.tokenizers).open() for name in order}

    def _users(self, name: str) -> list[int]:
        """Return the numbers of the text columns on which a tokenizer is trained."""
        used = [self._text(name).settings.tokenizer for name in self.names]
        users = [number for number, tokenizer in enumerate(used) if tokenizer == name]
        spelled = {
            other
            for other, settings in self.tokenizers.items()
            if isinstance(settings, SymbolSettings) and settings.spelling == name
        }
        return users or [number for number, tokenizer in enumerate(used) if tokenizer in spelled]

    def _written(
        self, split: str, columns: Mapping[str, Column], texts: _Texts | None
    ) -> dict[str, Any]:
        """Write one split; return its counts."""
        folder = self.fresh / split
        if (folder / HEADER).is_file():
            return Corpus.open(folder).report
        if texts is None:
            return self._without_text(split, columns, folder)
        return self._with_text(split, columns, texts, folder)

    def _with_text(
        self, split: str, columns: Mapping[str, Column], texts: _Texts, folder: Path
    ) -> dict[str, Any]:
        """Tokenize, filter and write the text columns, then the others."""
        selected = {name: columns[name] for name in self.names}
        text_columns = {
            name: column for name, column in selected.items() if isinstance(column, TextColumn)
        }
        others = {name: column for name, column in columns.items() if name not in text_columns}
        block = next((column.block for column in text_columns.values()), None)
        rules = self.data.filter
        unique = split == "train" and rules.duplicates == "drop"
        best_by = rules.best_by if unique else None
        recipe = ShardRecipe(
            folder=self.work / f"{split}.shards",
            sides=tuple(self._side(name, column) for name, column in text_columns.items()),
            limits=self.data.filter if block is None else None,
            spare=split == "valid",
            hashed=(rules.duplicates_of or self.names) if unique else (),
            mask=bool(others) or best_by is not None,
            escaped=texts.escaped,
        )
        recipe.folder.mkdir(exist_ok=True)
        sizes, total = shards_in(texts.counts), sum(texts.counts)
        self._shards(split, recipe, texts)
        counts = iter([len(shards_in([count])) for count in texts.counts])
        sources = [
            (name, sum(islice(counts, parts))) for name, parts in self.splits[split].sources.items()
        ]
        many = len(sizes) > 1
        gather(
            [recipe.path(number) for number in range(len(sizes))],
            folder,
            ShardLayout(
                columns=tuple(text_columns),
                vocab_size=max(column.vocabulary.vocab_size for column in text_columns.values()),
                tokenizers={
                    name: column.vocabulary.digest for name, column in text_columns.items()
                },
                unique=unique,
                raws=tuple(array_name(side.name, RAW) for side in recipe.sides if side.raw),
                block=block,
                fields=array_fields(others),
            ),
            sources=sources,
            scores=None if best_by is None else self._scores(best_by),
            tell=lambda rows: self.progress(f"{split} corpus", rows, total) if many else None,
            others=(lambda writer, keep_flags: self._rest(writer, split, columns, keep_flags))
            if others
            else None,
        )
        shutil.rmtree(recipe.folder)
        return Corpus.open(folder).report

    def _scores(self, field: str) -> Iterator[float]:
        """Yield the number in a field of each training record.

        Raises:
            InputError: a value is not a finite number.
        """
        reader = self.splits["train"]
        records = chain.from_iterable(
            reader.records(part, [field]) for part in range(reader.parts())
        )
        for record in records:
            yield placed(record, lambda: number_of(record.values[field], field))  # noqa: B023

    def _side(self, name: str, column: TextColumn) -> Side:
        return Side(
            name=name,
            vocabulary=file_of(self.fresh, column.settings.tokenizer, self.tokenizers),
            most=column.most,
            words=column.words,
            raw=column.settings.draws,
        )

    def _shards(self, split: str, recipe: ShardRecipe, texts: _Texts) -> None:
        """Make the shards that are not there yet."""
        sizes, total = shards_in(texts.counts), sum(texts.counts)
        done = {number for number in range(len(sizes)) if is_whole(recipe.path(number))}
        read = sum(sizes[number] for number in done)
        if done:
            self.progress(split, read, total)
        processes = self.processes
        if processes is not None:
            processes = max(1, min(processes, len(sizes) - len(done)))
        parts = pieces(texts.paths, texts.counts, done)
        with closing(make_shards(recipe, parts, processes, self.on, self.watch)) as finished:
            for piece in finished:
                read += piece.rows
                self.progress(split, read, total)

    def _without_text(
        self, split: str, columns: Mapping[str, Column], folder: Path
    ) -> dict[str, Any]:
        """Write a split without text columns, of which every row is kept."""
        count = FilterCount()
        reader, parts = self.splits[split], list[int]()
        fields = array_fields(columns)
        with CorpusWriter(folder, vocab_size=0, columns=(), fields=fields) as writer:
            for part in range(reader.parts()):
                before = count.read
                for record in reader.records(part, fields_of(columns)):
                    add_record(writer, columns, columns, record)
                    count.read += 1
                    if count.read % TELL == 0:
                        self.progress(split, count.read, None)
                parts.append(count.read - before)
            count.retained = count.read
            self.progress(split, count.read, count.read)
            writer.report = {**count.as_dict(), **unseen_in(columns)}
            counts = iter(parts)
            writer.sources = {
                name: sum(islice(counts, number)) for name, number in reader.sources.items()
            }
        return Corpus.open(folder).report

    def _rest(
        self,
        writer: CorpusWriter,
        split: str,
        columns: Mapping[str, Column],
        keep_flags: Iterator[bool],
    ) -> None:
        """Write the columns that are not text, for the rows that the filter kept."""
        others = {name: column for name, column in columns.items() if name not in self.names}
        changed = InputError("a file changed while it was being read", location=split)
        for record in self._records(split, columns):
            keep = next(keep_flags, None)
            if keep is None:
                raise changed
            if keep:
                add_record(writer, others, columns, record)
        if next(keep_flags, None) is not None:
            raise changed
        writer.report |= unseen_in(others)

    def _refuse_empty(self, split: str, report: Mapping[str, Any]) -> None:
        """Raise if no row of a split is left.

        Raises:
            InputError: no row was kept.
        """
        sources = Corpus.open(self.fresh / split).sources
        if report["kept"] and (empty := [name for name, rows in sources.items() if not rows]):
            raise InputError(
                f"none of the rows of the source '{empty[0]}' of '{split}' is left",
                help="relax the filter, or check that its files are the right ones",
            )
        if report["kept"]:
            return
        reasons = report["dropped"].items()
        dropped = ", ".join(f"{number} {reason}" for reason, number in reasons)
        what = "pairs" if self.names == ("source", "target") else "rows"
        raise InputError(
            f"none of the {report['read']} {what} of '{split}' is left"
            + (f": {dropped}" if dropped else ""),
            help="relax the filter, or check that the files are the right ones",
        )
