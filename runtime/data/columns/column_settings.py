"""Settings of columns: the type of each column, and how its values become tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from ....graphs.ir.value_type import ValueType
from ....specs.findings import did_you_mean
from ....specs.wording import SettingError
from ...system.plugins import Named
from ..settings import (
    AnyTokenizer,
    Name,
    PieceSettings,
    Settings,
    SymbolSettings,
    refuse_repeated,
)
from .noise import AnyNoise, CaseNoise

if TYPE_CHECKING:
    from ..readers.reader_settings import ReaderSettings

Tokenizers = Mapping[str, AnyTokenizer]
"""Settings of tokenizers by name."""
Columns = Mapping[str, "ColumnSettings"]
"""Settings of columns by name."""
Readers = Mapping[tuple[str, ...], "ReaderSettings"]
"""Settings of readers by place."""
BATCH = "B"
"""Name of the first axis of all inputs."""
Size = Annotated[int, Field(ge=1)]


def _distinct(classes: tuple[str, ...]) -> tuple[str, ...]:
    """Return classes.

    Raises:
        SettingError: a class is repeated.
    """
    refuse_repeated(classes, "class")
    return classes


Classes = Annotated[tuple[str, ...], Field(min_length=1), AfterValidator(_distinct)]
"""Classes in the order of their numbers."""


class ColumnSettings(Named):
    """Base class of the settings of a column; what is asked of a run before its data is read."""

    model_config = ConfigDict(populate_by_name=True)

    module: ClassVar[str]
    """Class of the column, a `Column`, as `file:Class`, relative to the package of the settings if
    it begins with a dot; it is imported when the column is needed, as it imports torch."""

    from_: str | None = Field(default=None, alias="from", min_length=1)
    """Field of the reader's records; `null` is the name of the column."""

    def prepared(self) -> dict[str, Any]:
        """Return what the prepared data depends on, as plain data."""
        return self.model_dump(mode="json")

    @property
    def words_of(self) -> tuple[str, ...]:
        """Text columns for each of whose words it has a value."""
        return ()

    def planned_inputs(
        self,
        name: str,  # noqa: ARG002
        tokenizers: Tokenizers,  # noqa: ARG002
    ) -> Mapping[str, ValueType] | None:
        """Return the types of the inputs that the column will fill; None if only the data tell.

        Sizes that only the data tell are left out of the types.

        Args:
            name: name of the column.
            tokenizers: tokenizers of the run.
        """
        return None

    def mistakes(
        self,
        name: str,  # noqa: ARG002
        columns: Columns,  # noqa: ARG002
        readers: Readers,  # noqa: ARG002
    ) -> Iterator[SettingError]:
        """Yield an error for each setting that does not fit other columns or the readers.

        Args:
            name: name of the column.
            columns: settings of all columns by name.
            readers: settings of all readers by their place, such as `("train", "jsonl")`; places of
                errors begin alike, with `train` or `columns`.
        """
        yield from ()

    def mistakes_of_tokenizers(
        self,
        name: str,  # noqa: ARG002
        columns: Columns,  # noqa: ARG002
        tokenizers: Tokenizers,  # noqa: ARG002
    ) -> Iterator[SettingError]:
        """Yield an error for each setting that does not fit a tokenizer.

        Args:
            name: name of the column.
            columns: settings of all columns by name.
            tokenizers: tokenizers of the run; places of errors begin with `data` or `tokenizers`.
        """
        yield from ()


class SamplingSettings(Settings):
    """Sub-word sampling: in each epoch of training, texts are split into other pieces."""

    alpha: float | None = Field(default=None, gt=0, le=10)
    """For `unigram`: smoothing of the probabilities of splits; smaller is more random.
    Kudo 2018, https://aclanthology.org/P18-1007"""
    drop: float | None = Field(default=None, gt=0, lt=1)
    """For `bpe`: probability of skipping a merge (BPE-dropout).
    Provilkov et al. 2020, https://aclanthology.org/2020.acl-main.170"""

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        """Check that one kind of sampling is chosen.

        Raises:
            ValueError: none or both are given.
        """
        if (self.alpha is None) == (self.drop is None):
            help_ = "give 'alpha' for a unigram tokenizer, or 'drop' for a bpe tokenizer"
            raise SettingError("sampling needs either 'alpha' or 'drop'", help_=help_)
        return self


class TextSettings(ColumnSettings):
    """Text as ids of a tokenizer."""

    module: ClassVar[str] = ".text:TextColumn"

    type: Literal["text"] = "text"
    """Selects this type of column."""
    tokenizer: Name
    """Name of the tokenizer, under `tokenizers`."""
    begin: bool = False
    """Put the begin token before each text."""
    end: bool = True
    """Put the end token after each text."""
    block: int | None = Field(default=None, ge=2)
    """Cut the concatenated texts into rows of this many tokens, for language models; `null` makes
    each text a row."""
    segment: int | None = Field(default=None, ge=2)
    """Cut each text, a document, into rows of this many tokens, which batches keep in order, for an
    objective with `segments`; the last row may be shorter."""
    max_length: int | None = Field(default=None, ge=1)
    """Cut each text to this many tokens, including begin and end tokens; `null` keeps it whole.
    `filter.max_length` drops long texts instead.  Only prepared texts are cut: a predictor that
    searches reads the whole source."""
    sampling: SamplingSettings | None = None
    """Sub-word sampling in training; `null` always uses the best split."""
    noise: tuple[AnyNoise, ...] = ()
    """Changes of the texts in training, drawn anew in each epoch and applied in order."""

    @property
    def draws(self) -> bool:
        """Whether training draws other texts or pieces in each epoch."""
        return self.sampling is not None or bool(self.noise)

    def prepared(self) -> dict[str, Any]:
        """Return what the prepared data depends on: whether the text is stored, not the noise."""
        return {
            **self.model_dump(mode="json", exclude={"sampling", "noise"}),
            "draws": self.draws,
        }

    @model_validator(mode="after")
    def _check_block(self) -> Self:
        """Check that the settings can be combined.

        Raises:
            ValueError: a setting would have no effect beside `block` or `segment`, or `max_length`
                leaves no space for text.
        """
        for cut in (name for name in ("block", "segment") if getattr(self, name) is not None):
            for name in ("max_length", "sampling", "noise", "block"):
                if name != cut and getattr(self, name) not in (None, ()):
                    msg = f"'{name}' cannot be combined with '{cut}'"
                    raise SettingError(msg, name, help_=f"remove '{name}' or '{cut}'")
        if self.segment is not None and not self.end:
            msg = "'segment' needs the end token, by which a document ends"
            raise SettingError(msg, "end", help_="set 'end' to true, or remove it")
        if self.max_length is not None and self.max_length <= self.begin + self.end:
            msg = f"'max_length' {self.max_length} leaves no token for the text"
            raise SettingError(msg, "max_length", help_="increase it")
        return self

    def planned_inputs(self, name: str, tokenizers: Tokenizers) -> Mapping[str, ValueType]:
        """Return the types of the inputs."""
        return {name: ValueType("ids", (BATCH, name), _pieces(tokenizers, self.tokenizer))}

    def mistakes(
        self,
        name: str,
        columns: Columns,
        readers: Readers,
    ) -> Iterator[SettingError]:
        """Yield an error for each noise of unknown sources, or of words that have tags."""
        train = [path[2] for path in readers if path[:2] == ("train", "sources")]
        tagged = [other for other, settings in columns.items() if name in settings.words_of]
        for number, noise in enumerate(self.noise):
            at = ("columns", name, "noise", number)
            for which, source in enumerate(noise.sources or ()):
                if source not in train:
                    msg = f"the training data has no source '{source}'"
                    help_ = did_you_mean(source, train) or "name sources, or remove 'sources'"
                    yield SettingError(msg, *at, "sources", which, help_=help_)
            if noise.moves_words and tagged:
                msg = f"the column '{tagged[0]}' has a value for each word, so words cannot move"
                yield SettingError(msg, *at, help_=f"remove it; '{noise.type}' changes the words")

    def mistakes_of_tokenizers(
        self,
        name: str,
        columns: Columns,  # noqa: ARG002
        tokenizers: Tokenizers,
    ) -> Iterator[SettingError]:
        """Yield an error for each noise that the tokenizer does not see, or splits."""
        tokenizer = tokenizers.get(self.tokenizer)
        if not isinstance(tokenizer, PieceSettings):
            return
        for number, noise in enumerate(self.noise):
            at = ("data", "columns", name, "noise", number)
            if isinstance(noise, CaseNoise) and tokenizer.lowercase:
                msg = f"the tokenizer '{self.tokenizer}' folds case, so the noise changes nothing"
                yield SettingError(msg, *at, help_="remove it, or the tokenizer's 'lowercase'")
            key = {"tag": "text", "replace": "by"}.get(noise.type, "")
            symbol = getattr(noise, key, None)
            if symbol is not None and symbol not in tokenizer.user_symbols:
                msg = f"'{symbol}' is not one piece of the tokenizer '{self.tokenizer}'"
                yield SettingError(msg, *at, key, help_="add it to its 'user_symbols'")


class ClassSettings(ColumnSettings):
    """One class of each row."""

    module: ClassVar[str] = ".labels:ClassColumn"

    type: Literal["class"] = "class"
    """Selects this type of column."""
    classes: Classes | None = None
    """Classes in the order of their numbers; `null` takes those of the training data, sorted."""
    unseen: Literal["refuse", "count"] = "refuse"
    """What to do with an unknown class in validation and test data: stop with an error, or count
    it in the report and use the label -1, which no loss counts."""

    def planned_inputs(self, name: str, tokenizers: Tokenizers) -> Mapping[str, ValueType]:  # noqa: ARG002
        """Return the types of the inputs."""
        return {name: ValueType("label", (BATCH,), len(self.classes) if self.classes else None)}


class TagsSettings(ColumnSettings):
    """One tag for each word of a text column, separated by white space.

    The label is on the first piece of a word; other pieces have the label -1.
    """

    module: ClassVar[str] = ".labels:TagsColumn"

    type: Literal["tags"] = "tags"
    """Selects this type of column."""
    of: Name
    """Text column whose words have the tags."""
    classes: Classes | None = None
    """Tags in the order of their numbers; `null` takes those of the training data, sorted."""
    unseen: Literal["refuse", "count"] = "refuse"
    """What to do with an unknown tag in validation and test data, as for classes."""

    @property
    def words_of(self) -> tuple[str, ...]:
        """The text column."""
        return (self.of,)

    def planned_inputs(self, name: str, tokenizers: Tokenizers) -> Mapping[str, ValueType]:  # noqa: ARG002
        """Return the types of the inputs."""
        size = len(self.classes) if self.classes else None
        return {name: ValueType("label", (BATCH, self.of), size)}

    def mistakes(
        self,
        name: str,
        columns: Columns,
        readers: Readers,  # noqa: ARG002
    ) -> Iterator[SettingError]:
        """Yield an error if the words are not a text column."""
        yield from missing_text(name, "of", self.of, columns)


class NumberSettings(ColumnSettings):
    """One number of each row."""

    module: ClassVar[str] = ".number:NumberColumn"

    type: Literal["number"] = "number"
    """Selects this type of column."""

    def planned_inputs(self, name: str, tokenizers: Tokenizers) -> Mapping[str, ValueType]:  # noqa: ARG002
        """Return the types of the inputs."""
        return {name: ValueType("f", (BATCH,))}


class ImageSettings(ColumnSettings):
    """Images of one size, as floats."""

    module: ClassVar[str] = ".image:ImageColumn"

    type: Literal["image"] = "image"
    """Selects this type of column."""
    size: tuple[Size, Size, Size]
    """Channels, height and width; an image of another size is an error."""
    dtype: Literal["uint8", "float32"] = "uint8"
    """Type of the stored values: `uint8` is divided by 255, `float32` is used as it is."""
    mean: tuple[float, ...] | None = None
    """Mean of each channel, subtracted from the values between 0 and 1."""
    std: tuple[Annotated[float, Field(gt=0)], ...] | None = None
    """Standard deviation of each channel, by which the values are then divided."""

    @model_validator(mode="after")
    def _check_channels(self) -> Self:
        """Check that there is one mean and one deviation for each channel.

        Raises:
            ValueError: there is another number of them.
        """
        for name in ("mean", "std"):
            values = getattr(self, name)
            if values is not None and len(values) != self.size[0]:
                msg = f"{len(values)} values for {self.size[0]} channels"
                raise SettingError(msg, name, help_="write one value for each channel")
        return self

    def planned_inputs(self, name: str, tokenizers: Tokenizers) -> Mapping[str, ValueType]:  # noqa: ARG002
        """Return the types of the inputs."""
        return {name: ValueType("f", (BATCH, *self.size))}


class AudioSettings(ColumnSettings):
    """Mono audio, as samples between -1 and 1, stored with 16 bits."""

    module: ClassVar[str] = ".audio:AudioColumn"

    type: Literal["audio"] = "audio"
    """Selects this type of column."""
    rate: int = Field(default=16_000, ge=1)
    """Samples per second; a file with another rate is an error."""

    def planned_inputs(self, name: str, tokenizers: Tokenizers) -> Mapping[str, ValueType]:  # noqa: ARG002
        """Return the types of the inputs."""
        time = (BATCH, name)
        return {name: ValueType("f", time), f"{name}_mask": ValueType("mask", time)}


def missing_text(name: str, key: str, text: str, columns: Columns) -> Iterator[SettingError]:
    """Yield an error if a setting of a column does not name a text column.

    Args:
        name: name of the column.
        key: its setting.
        text: value of the setting.
        columns: settings of all columns by name.
    """
    texts = [other for other, settings in columns.items() if isinstance(settings, TextSettings)]
    if text not in texts:
        help_ = did_you_mean(text, texts) or "add one"
        yield SettingError(f"there is no text column '{text}'", "columns", name, key, help_=help_)


def _pieces(tokenizers: Tokenizers, name: str) -> int | None:
    """Return the number of pieces of a tokenizer, or the least number of symbols; None if unknown.

    Spelled symbols have the pieces of their spelling too.
    """
    settings = tokenizers.get(name)
    if isinstance(settings, SymbolSettings) and settings.spelling is not None:
        settings = tokenizers.get(settings.spelling)
    return settings.vocab_size if isinstance(settings, PieceSettings) else None
