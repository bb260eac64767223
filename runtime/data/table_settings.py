"""Settings of a table: columns, the reader of each split, tokenizers and the filter."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any, Self

from pydantic import Field, ValidationInfo, model_validator

from ...specs.findings import did_you_mean
from ...specs.wording import SettingError, refuse
from ..system.plugins import Selected
from .columns.column_settings import ColumnSettings, TextSettings
from .columns.registry import COLUMNS
from .readers.split import RecordSource, Split
from .settings import (
    AnyTokenizer,
    FilterSettings,
    Name,
    PathText,
    PreparedAddress,
    Settings,
    Stage,
    SymbolSettings,
)

AnyColumn = Annotated[ColumnSettings, Selected(COLUMNS)]
"""A column of any type."""
TestName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,127}$")]
"""Name of a test set, which is also part of the names of files."""


class DataSettings(Settings):
    """Data of a run: columns, and the files of each split."""

    root: PathText = "."
    """Folder that must contain every file, after resolving links."""
    prepared: PreparedAddress | None = None
    """Address of data that `weft prepare RUN --to PLACE` has prepared, in a folder below `root` or
    a bucket: it is used instead of the files of the splits."""
    columns: dict[Name, AnyColumn] = Field(min_length=1)
    """Columns by name."""
    train: Split
    """Training rows; tokenizers and classes are taken from them."""
    valid: Split
    """Validation rows."""
    test: dict[TestName, Split] = Field(default_factory=dict)
    """Test sets by name; they are not encoded in advance."""
    filter: FilterSettings = FilterSettings()
    """Which training rows are dropped."""
    mixture: tuple[Stage, ...] = ()
    """How often the rows of the sources of `train` occur, by stages of the run; by default, each
    row occurs once in an epoch."""

    @model_validator(mode="after")
    def _check_columns(self, info: ValidationInfo) -> Self:
        """Check what one column alone cannot know.

        Raises:
            CombinedSettingError: columns do not fit together, or a filter has no effect.
        """
        refuse(self._mistakes(), info)
        return self

    def _mistakes(self) -> Iterator[SettingError]:
        """Yield an error for each setting that does not fit others, or has no effect."""
        for name in ("train", "valid"):
            if name in self.test:
                msg = f"'{name}' cannot be the name of a test set"
                yield SettingError(msg, "test", name, help_="rename the test set")
        texts = {
            name: column
            for name, column in self.columns.items()
            if isinstance(column, TextSettings)
        }
        blocks = [name for name, column in texts.items() if column.block or column.segment]
        if blocks and len(self.columns) > 1:
            cut = "block" if texts[blocks[0]].block else "segment"
            msg = f"a column with '{cut}' cannot be combined with other columns"
            help_ = f"remove '{cut}' or the other columns: {cut}s do not align with rows"
            yield SettingError(msg, "columns", blocks[0], cut, help_=help_)
        if self.mixture and any(texts[name].segment for name in blocks):
            msg = "weights of sources would interrupt the segments of documents"
            yield SettingError(msg, "mixture", help_="remove 'mixture'")
        yield from self._mistakes_of_mixture()
        readers = {(*at, column.reader): column.settings for at, column in self.sources().items()}
        for name, column in self.columns.items():
            yield from column.mistakes(name, self.columns, readers)
        yield from self._mistakes_of_filter(texts, blocks)

    def _mistakes_of_duplicates(self, texts: Mapping[str, TextSettings]) -> Iterator[SettingError]:
        """Yield an error for each rule of duplicates that has no effect, or names nothing."""
        rules = self.filter
        for key in ("duplicates_of", "best_by"):
            if rules.duplicates == "keep" and getattr(rules, key) is not None:
                msg = f"'{key}' has no effect, because duplicates are kept"
                yield SettingError(msg, "filter", key, help_="set 'duplicates' to 'drop'")
        for number, name in enumerate(rules.duplicates_of or ()):
            if name not in texts:
                help_ = did_you_mean(name, texts) or "add one"
                msg = f"there is no text column '{name}'"
                yield SettingError(msg, "filter", "duplicates_of", number, help_=help_)
        if rules.duplicates_of is not None and texts and {*rules.duplicates_of} >= {*texts}:
            msg = "all text columns are compared, as without it"
            yield SettingError(msg, "filter", "duplicates_of", help_="remove it")
        for source in self.train.by_place().values():
            fields = source.settings.fields()
            if rules.best_by is not None and fields is not None and rules.best_by not in fields:
                msg = f"the training data has no field '{rules.best_by}'"
                help_ = did_you_mean(rules.best_by, fields)
                yield SettingError(msg, "filter", "best_by", help_=help_)
                return

    def _mistakes_of_mixture(self) -> Iterator[SettingError]:
        """Yield an error for each stage that does not fit the sources or the other stages."""
        names = self.train.sources
        if self.mixture and not names:
            msg = "the training data has no named sources whose rows could be weighted"
            help_ = 'name them: {"sources": {"news": {"lines": ...}, "talks": {"lines": ...}}}'
            yield SettingError(msg, "mixture", help_=help_)
            return
        for number, stage in enumerate(self.mixture):
            is_last = number == len(self.mixture) - 1
            for name in stage.weights:
                if name not in names:
                    msg, help_ = f"there is no source '{name}'", did_you_mean(name, names)
                    yield SettingError(msg, "mixture", number, "weights", name, help_=help_)
            if not any(stage.weights.get(name, 1.0) for name in names):
                msg = "all weights are 0, so the stage has no rows"
                help_ = "give a source a weight above 0"
                yield SettingError(msg, "mixture", number, "weights", help_=help_)
            if is_last and stage.until is not None:
                msg = "no stage follows after the last one, so it has no 'until'"
                help_ = "remove 'until', or add a stage"
                yield SettingError(msg, "mixture", number, "until", help_=help_)
            if not is_last and stage.until is None:
                msg = "the stage does not end, so the next one never begins"
                help_ = "add 'until': an update, or a share of the run below 1"
                yield SettingError(msg, "mixture", number, help_=help_)

    def _mistakes_of_filter(
        self, texts: Mapping[str, TextSettings], blocks: Collection[str]
    ) -> Iterator[SettingError]:
        """Yield an error for each rule of the filter without effect."""
        written = self.filter.model_dump(exclude_defaults=True)
        lengths = written.keys() - {"duplicates", "duplicates_of", "best_by"}
        yield from self._mistakes_of_duplicates(texts)
        idle = sorted(written if not texts else lengths if blocks else ())
        what = "has no text column" if not texts else "cuts its text into rows"
        for key in idle:
            msg = f"'{key}' has no effect on data that {what}"
            yield SettingError(msg, "filter", key, help_=f"remove '{key}'")
        if not idle and "max_ratio" in written and len(texts) == 1:
            msg = "'max_ratio' has no effect on data with one text column"
            yield SettingError(msg, "filter", "max_ratio", help_="remove 'max_ratio'")

    def sources(self) -> dict[tuple[str, ...], RecordSource]:
        """Return the sources of all splits by their place below `data`."""
        by_place: dict[tuple[str, ...], Split] = {("train",): self.train, ("valid",): self.valid}
        by_place |= {("test", name): split for name, split in self.test.items()}
        return {
            (*at, *inner): source
            for at, split in by_place.items()
            for inner, source in split.by_place().items()
        }


Tokenizers = dict[Name, AnyTokenizer]


def unfit_tokenizers(data: DataSettings, tokenizers: Tokenizers) -> Iterator[SettingError]:
    """Yield an error for each column and tokenizer that do not name each other.

    A column names an unknown tokenizer, a tokenizer is not used, or is spelled by one that cannot
    spell.  If a name is unknown, tokenizers without use may have been meant by it.
    """
    used, unknown = set[str](), False
    for name, column in data.columns.items():
        if isinstance(column, TextSettings):
            unknown = unknown or column.tokenizer not in tokenizers
            yield from _unfit_sampling(name, column, tokenizers)
            used.add(column.tokenizer)
        yield from column.mistakes_of_tokenizers(name, data.columns, tokenizers)
    for name, tokenizer in tokenizers.items():
        if isinstance(tokenizer, SymbolSettings) and tokenizer.spelling is not None:
            other = tokenizers.get(tokenizer.spelling)
            unknown = unknown or other is None
            if other is None or isinstance(other, SymbolSettings):
                msg = f"'{tokenizer.spelling}' is not a tokenizer of pieces"
                pieces = [
                    key for key, tokenizer in tokenizers.items() if tokenizer.type != "symbols"
                ]
                help_ = did_you_mean(tokenizer.spelling, pieces) or "add one"
                yield SettingError(msg, "tokenizers", name, "spelling", help_=help_)
            used.add(tokenizer.spelling)
    for name in () if unknown else [name for name in tokenizers if name not in used]:
        msg = f"no column uses the tokenizer '{name}'"
        yield SettingError(msg, "tokenizers", name, help_="remove it, or name it in a text column")


def _unfit_sampling(
    name: str, column: TextSettings, tokenizers: Tokenizers
) -> Iterator[SettingError]:
    """Yield an error if the tokenizer of a column is unknown, or cannot sample as it asks."""
    at = ("data", "columns", name)
    tokenizer = tokenizers.get(column.tokenizer)
    if tokenizer is None:
        msg = f"there is no tokenizer '{column.tokenizer}'"
        help_ = did_you_mean(column.tokenizer, tokenizers) or "add it under 'tokenizers'"
        yield SettingError(msg, *at, "tokenizer", help_=help_)
        return
    if column.sampling is None:
        return
    kinds: dict[str, Any] = {"bpe": "drop", "unigram": "alpha"}
    expected = kinds.get(tokenizer.type)
    if expected is None and not (tokenizer.type == "file" and tokenizer.path.endswith(".model")):
        msg = f"a tokenizer of type '{tokenizer.type}' cannot sample"
        yield SettingError(msg, *at, "sampling", help_="remove 'sampling'")
        return
    key = "drop" if column.sampling.alpha is None else "alpha"
    if expected is not None and key != expected:
        msg = f"'{key}' has no effect on a tokenizer of type '{tokenizer.type}'"
        yield SettingError(msg, *at, "sampling", key, help_=f"give '{expected}' instead")
