"""Labels: one class of each row, or one tag of each word of a text column."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ....graphs.ir.value_type import ValueType
from ....specs.findings import InputError, did_you_mean
from ..shards.arrays import ArrayField
from ..words import word_starts
from .column import Arrays, Column, ColumnContext
from .column_settings import BATCH
from .noise import Noise
from .text import TextColumn
from .values import class_of, tags_of, text_of

if TYPE_CHECKING:
    from .column_settings import ClassSettings, TagsSettings

CLASSES = ".classes.json"
"""Ending of the file with the classes of a column."""
NONE = -1
"""Label of padding, of pieces that do not begin a word, and of unknown classes."""


class LabelColumn(Column):
    """Column whose values are names of classes."""

    settings: ClassSettings | TagsSettings

    def __init__(self, name: str, settings: Any, context: ColumnContext) -> None:
        """Load the classes, if they are known."""
        super().__init__(name, settings, context)
        self.classes: tuple[str, ...] = tuple(settings.classes or ())
        """Classes in the order of their numbers."""
        stored = context.files.get(self._file)
        if settings.classes is None and stored is not None:
            self.classes = opened_classes(stored, self._file)
        self._unseen: dict[str, int] = {}

    @property
    def _file(self) -> str:
        return f"{self.name}{CLASSES}"

    @property
    def fits(self) -> bool:
        """Whether the classes must be taken from the training data."""
        return not self.classes

    def _known(self, value: Any) -> Iterator[str]:
        """Yield the classes in a value."""
        yield class_of(value, self.name)

    def fit(self, values: Iterable[Any]) -> None:
        """Take the classes from training values, sorted."""
        self.classes = tuple(sorted({label for value in values for label in self._known(value)}))
        vars(self).pop("_numbers", None)

    @cached_property
    def _numbers(self) -> Mapping[str, int]:
        return {name: number for number, name in enumerate(self.classes)}

    def _number(self, name: str) -> int:
        """Return the number of a class.

        Raises:
            InputError: the class is unknown and must not be counted.
        """
        number = self._numbers.get(name)
        if number is not None:
            return number
        if self.settings.unseen == "count":
            self._unseen[name] = self._unseen.get(name, 0) + 1
            return NONE
        near = did_you_mean(name, self.classes)
        fixed = "of 'classes'" if self.settings.classes else "in the training data"
        raise InputError(
            f"'{name}' is not among the {len(self.classes)} classes {fixed}",
            help=f"{near}; or set 'unseen' of the column '{self.name}' to 'count'",
        )

    @property
    def unseen(self) -> Mapping[str, int]:
        """Unknown classes, with their numbers of occurrences."""
        return self._unseen

    def files(self) -> Mapping[str, bytes]:
        """Return the classes as a file."""
        content = json.dumps(list(self.classes), ensure_ascii=False, indent=0)
        return {self._file: f"{content}\n".encode()}


class ClassColumn(LabelColumn):
    """One class of each row."""

    @property
    def inputs(self) -> Mapping[str, ValueType]:
        """Labels, B."""
        return {self.name: ValueType("label", (BATCH,), len(self.classes))}

    @property
    def fields(self) -> Mapping[str, ArrayField]:
        """Number of the class, or -1."""
        return {"": ArrayField("<i4")}

    def encode(self, value: Any) -> Mapping[str, NDArray[Any]]:
        """Return the number of a class.

        Raises:
            InputError: the class is unknown.
        """
        return {"": np.array(self._number(class_of(value, self.name)), dtype=np.int32)}

    def collate(
        self,
        arrays: Arrays,
        rows: NDArray[np.int64],
        collated: Mapping[str, Tensor],  # noqa: ARG002
        noise: Noise | None = None,  # noqa: ARG002
    ) -> dict[str, Tensor]:
        """Return labels, B, int64."""
        return {self.name: torch.from_numpy(arrays[""].items[rows].astype(np.int64))}

    def decode(self, prediction: Any) -> str:
        """Return the name of a class."""
        return self.classes[int(prediction)]


class TagsColumn(LabelColumn):
    """One tag of each word; stored by word, and put on the first pieces when it is collated."""

    settings: TagsSettings

    def __init__(self, name: str, settings: TagsSettings, context: ColumnContext) -> None:
        """Find the text column, and make each of its words begin exactly one piece."""
        super().__init__(name, settings, context)
        text = context.columns[settings.of]
        if not isinstance(text, TextColumn):
            msg = f"column '{settings.of}' is not a text"
            raise InputError(msg, location=f"column {name}", help="name a text column as 'of'")
        text.words = True
        self.text = text
        self.axis = text.name

    @property
    def inputs(self) -> Mapping[str, ValueType]:
        """Labels of all pieces, B x T."""
        return {self.name: ValueType("label", (BATCH, self.text.name), len(self.classes))}

    @property
    def fields(self) -> Mapping[str, ArrayField]:
        """Number of the tag of each word."""
        return {"": ArrayField("<i4", ragged=True)}

    def _known(self, value: Any) -> Iterator[str]:
        yield from tags_of(value, self.name)

    def encode(self, value: Any) -> Mapping[str, NDArray[Any]]:
        """Return the numbers of the tags of all words.

        Raises:
            InputError: a tag is unknown.
        """
        return {"": np.array([self._number(tag) for tag in tags_of(value, self.name)], np.int32)}

    def check(self, value: Any, row: Mapping[str, Any]) -> None:
        """Check that there is one tag for each word.

        Raises:
            InputError: there is another number of tags.
        """
        tags = len(tags_of(value, self.name))
        words = len(text_of(row[self.text.name], self.text.name).split())
        if tags != words:
            raise InputError(
                f"{tags} tags in '{self.name}' for {words} words in '{self.text.name}'",
                help="write one tag for each word, separated by spaces",
            )
        _ = self._starts  # raise now, not in training, if no piece begins a word

    @cached_property
    def _starts(self) -> NDArray[np.bool_]:
        """Which ids begin a word, (vocabulary,).

        Raises:
            InputError: no piece does, as where pieces are characters: no piece could have a label.
        """
        starts = word_starts(self.text.vocabulary)
        if not starts.any():
            raise InputError(
                f"no piece of the tokenizer '{self.text.settings.tokenizer}' begins a word, so"
                f" none can have a tag of '{self.name}'",
                help="use a tokenizer of the type 'bpe' or 'unigram'",
            )
        return starts

    def collate(
        self,
        arrays: Arrays,
        rows: NDArray[np.int64],
        collated: Mapping[str, Tensor],
        noise: Noise | None = None,  # noqa: ARG002
    ) -> dict[str, Tensor]:
        """Return the tag of each word on its first piece and -1 elsewhere, B x T, int64."""
        begins = self._starts[collated[self.text.name].numpy()]
        labels = np.full(begins.shape, NONE, dtype=np.int64)
        for number, row in enumerate(rows):
            places = np.flatnonzero(begins[number])
            tags = arrays[""].row(int(row))
            labels[number, places[: len(tags)]] = tags[: len(places)]  # a cut text has fewer words
        return {self.name: torch.from_numpy(labels)}

    def tokens(self, inputs: Mapping[str, Tensor]) -> Mapping[str, int]:
        """Return the number of labeled pieces."""
        return {self.name: int((inputs[self.name] != NONE).sum())}

    def decode(self, prediction: Any) -> str:
        """Return tags, separated by spaces, of the numbers of all words."""
        return " ".join(self.classes[int(number)] for number in prediction if int(number) != NONE)


def opened_classes(content: bytes, location: str) -> tuple[str, ...]:
    """Return the classes in a file.

    Raises:
        InputError: the file is damaged.
    """
    try:
        classes = json.loads(content)
        sound = isinstance(classes, list) and all(isinstance(name, str) for name in classes)
    except ValueError:
        sound = False
    if not sound:
        raise InputError(
            "file of classes is damaged", location=location, help="prepare the data again"
        )
    return tuple(classes)
