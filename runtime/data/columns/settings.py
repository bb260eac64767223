"""Settings of columns: the type of each column, and how its values become tensors."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from ....specs.wording import SettingError
from ..settings import Name, Settings, refuse_repeated

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


class ColumnSettings(Settings):
    """Settings that all types of columns have."""

    model_config = ConfigDict(populate_by_name=True)

    from_: str | None = Field(default=None, alias="from", min_length=1)
    """Field of the reader's records; `null` is the name of the column."""


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

    @model_validator(mode="after")
    def _check_block(self) -> Self:
        """Check that the settings can be combined.

        Raises:
            ValueError: a setting would have no effect beside `block` or `segment`, or `max_length`
                leaves no space for text.
        """
        for cut in (name for name in ("block", "segment") if getattr(self, name) is not None):
            for name in ("max_length", "sampling", "block"):
                if name != cut and getattr(self, name) is not None:
                    msg = f"'{name}' cannot be combined with '{cut}'"
                    raise SettingError(msg, name, help_=f"remove '{name}' or '{cut}'")
        if self.segment is not None and not self.end:
            msg = "'segment' needs the end token, by which a document ends"
            raise SettingError(msg, "end", help_="set 'end' to true, or remove it")
        if self.max_length is not None and self.max_length <= self.begin + self.end:
            msg = f"'max_length' {self.max_length} leaves no token for the text"
            raise SettingError(msg, "max_length", help_="increase it")
        return self


class ClassSettings(ColumnSettings):
    """One class of each row."""

    type: Literal["class"] = "class"
    """Selects this type of column."""
    classes: Classes | None = None
    """Classes in the order of their numbers; `null` takes those of the training data, sorted."""
    unseen: Literal["refuse", "count"] = "refuse"
    """What to do with an unknown class in validation and test data: stop with an error, or count
    it in the report and use the label -1, which no loss counts."""


class TagsSettings(ColumnSettings):
    """One tag for each word of a text column, separated by white space.

    The label is on the first piece of a word; other pieces have the label -1.
    """

    type: Literal["tags"] = "tags"
    """Selects this type of column."""
    of: Name
    """Text column whose words have the tags."""
    classes: Classes | None = None
    """Tags in the order of their numbers; `null` takes those of the training data, sorted."""
    unseen: Literal["refuse", "count"] = "refuse"
    """What to do with an unknown tag in validation and test data, as for classes."""


class TreeSettings(ColumnSettings):
    """A tree over the words of a text column, whose symbols are another text column."""

    type: Literal["tree"] = "tree"
    """Selects this type of column."""
    words: Name = "source"
    """Text column with the words, such as the field `source` of the reader `trees`."""
    symbols: Name = "target"
    """Text column with the symbols of the tree, such as the field `target` of that reader; its
    tokenizer has the labels and tags."""
    decoder: Literal["sequence", "chart", "tags"]
    """What the tensors are for: a `chart` of labeled spans, or `tags` of words.  For a `sequence`
    the model reads and writes the text columns, and the trees serve only metrics."""
    linearization: Literal["vinyals", "tensor2tensor", "top_down"] = "vinyals"
    """The form of a `sequence`, as for the reader."""

    @model_validator(mode="after")
    def _check_linearization(self) -> Self:
        """Check that the form has an effect.

        Raises:
            ValueError: the trees are not written as a sequence.
        """
        if self.decoder != "sequence" and self.linearization != "vinyals":
            msg = f"'linearization' has no effect on the decoder '{self.decoder}'"
            raise SettingError(msg, "linearization", help_="remove it")
        return self


class NumberSettings(ColumnSettings):
    """One number of each row."""

    type: Literal["number"] = "number"
    """Selects this type of column."""


class ImageSettings(ColumnSettings):
    """Images of one size, as floats."""

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


class AudioSettings(ColumnSettings):
    """Mono audio, as samples between -1 and 1, stored with 16 bits."""

    type: Literal["audio"] = "audio"
    """Selects this type of column."""
    rate: int = Field(default=16_000, ge=1)
    """Samples per second; a file with another rate is an error."""


class PluginColumnSettings(ColumnSettings):
    """Column of a type that an installed package adds."""

    type: Literal["plugin"] = "plugin"
    """Selects this type of column."""
    plugin: str
    """Name of the entry point in the group `weft.columns`."""
    params: dict[str, Any] = Field(default_factory=dict)
    """Settings of the type."""


AnyColumn = Annotated[
    TextSettings
    | ClassSettings
    | TagsSettings
    | TreeSettings
    | NumberSettings
    | ImageSettings
    | AudioSettings
    | PluginColumnSettings,
    Field(discriminator="type"),
]
"""A column of any type."""
