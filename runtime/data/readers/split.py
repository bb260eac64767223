"""A split: the reader of its records, named by its key, and the weights of its files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    Field,
    GetJsonSchemaHandler,
    SerializationInfo,
    TypeAdapter,
    ValidationError,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from ....specs.wording import Keyed, SettingError
from ...system.plugins import dumped, implementation_of, schema_of
from ..settings import Settings
from .reader import Reader
from .reader_settings import ReaderSettings
from .registry import READERS


class Split(Settings, Keyed):
    """Records of one split: exactly one reader, named by its key."""

    unwritten: ClassVar[frozenset[str]] = frozenset({"reader", "settings"})

    reader: str
    """Name of the reader, which is a key of the split."""
    settings: ReaderSettings
    """Settings of the reader, which are the value of this key."""
    weights: tuple[Annotated[float, Field(gt=0, le=1000)], ...] | None = None
    """How often the rows of each file occur in a training epoch (default: 1 each); 0.1 uses a
    tenth of them, a different tenth each epoch."""

    @classmethod
    def keyed(cls) -> Mapping[str, Any]:
        """Return the settings of each reader by its name."""
        return READERS.forms()

    @model_validator(mode="before")
    @classmethod
    def _find_reader(cls, value: Any) -> Any:
        """Read the settings of the reader that a key names.

        Raises:
            SettingError: there are no or several readers.
            ValidationError: a key is unknown, or a setting of the reader is wrong.
        """
        if not isinstance(value, Mapping) or isinstance(value.get("settings"), ReaderSettings):
            return value
        keys = {key: inner for key, inner in value.items() if inner is not None}
        weights = {"weights": keys.pop("weights")} if "weights" in keys else {}
        if isinstance(weights.get("weights"), list):
            weights["weights"] = tuple(weights["weights"])
        names = READERS.names()
        if unknown := [key for key in keys if key not in names]:
            raise ValidationError.from_exception_data(
                cls.__name__,
                [{"type": "extra_forbidden", "loc": (key,), "input": keys[key]} for key in unknown],
            )
        if len(keys) != 1:
            readers = " and ".join(f"'{name}'" for name in keys) or "none"
            raise SettingError(
                f"a split needs exactly one reader, but has {readers}",
                *[*keys][1:2],
                help_=f"name one of the readers: {', '.join(names)}",
            )
        [name] = keys
        form: Any = READERS.find(name)
        keyed = TypeAdapter[Any](dict[str, form])  # so that errors lie below the key
        settings = keyed.validate_json(json.dumps(keys, default=str), strict=True)
        return {"reader": name, "settings": settings[name], **weights}

    @model_validator(mode="after")
    def _check_weights(self) -> Self:
        """Check that there are as many weights as files.

        Raises:
            SettingError: there is another number of weights.
        """
        files = self.settings.file_count
        if self.weights is not None and files is not None and len(self.weights) != files:
            msg = f"{len(self.weights)} weights for {files} files"
            raise SettingError(msg, "weights", help_="write one weight for each file, or none")
        return self

    @model_serializer
    def _dump(self, info: SerializationInfo) -> dict[str, Any]:
        """Return the settings of the reader under its name, and the weights if there are any."""
        weights = {} if self.weights is None else {"weights": self.weights}
        return {self.reader: dumped(self.settings, info), **weights}

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return the JSON Schema: a key for each reader, and the weights."""
        record = handler.resolve_ref_schema(handler(schema))
        readers = {name: schema_of(form, handler) for name, form in cls.keyed().items()}
        weights = record["properties"]["weights"]
        record.pop("required", None)
        record["properties"] = {**readers, "weights": weights}
        return record


def reader_of(split: Split, root: str) -> Reader:
    """Return the reader of a split.

    Raises:
        InputError: the reader of an installed package cannot be imported.
    """
    reader: Reader = implementation_of(split.settings, Reader)(split.settings, root)
    return reader
