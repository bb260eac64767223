"""A split: the reader of its records, named by its key, or several sources by name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

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
from ..settings import Settings, SourceName
from .reader import Reader
from .reader_settings import ReaderSettings
from .registry import READERS

SOURCES = "sources"
"""Key of a split that consists of several sources."""


class RecordSource(Settings, Keyed):
    """Records of one source: exactly one reader, named by its key."""

    unwritten: ClassVar[frozenset[str]] = frozenset({"reader", "settings"})

    reader: str
    """Name of the reader, which is the key."""
    settings: ReaderSettings
    """Settings of the reader, which are the value of this key."""

    @classmethod
    def keyed(cls) -> Mapping[str, Any]:
        """Return the settings of each reader by its name."""
        return READERS.forms()

    @classmethod
    def names(cls) -> list[str]:
        """Return the keys."""
        return READERS.names()

    @classmethod
    def form(cls, name: str) -> Any:
        """Return the form of the value of a key.

        Raises:
            InputError: a plug-in is broken.
        """
        return READERS.find(name)

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
        names = cls.names()
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
        form: Any = cls.form(name)
        keyed = TypeAdapter[Any](dict[str, form])  # so that errors lie below the key
        settings = keyed.validate_json(json.dumps(keys, default=str), strict=True)[name]
        if not isinstance(settings, ReaderSettings):
            settings = SourcesSettings(by_name=settings)
        return {"reader": name, "settings": settings}

    @model_serializer
    def _dump(self, info: SerializationInfo) -> dict[str, Any]:
        """Return the settings of the reader under its name."""
        return {self.reader: dumped(self.settings, info)}

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return the JSON Schema: a key for each reader."""
        record = handler.resolve_ref_schema(handler(schema))
        record.pop("required", None)
        record["properties"] = {
            name: schema_of(form, handler) for name, form in READERS.forms().items()
        }
        return record


Sources = Annotated[dict[SourceName, RecordSource], Field(min_length=1)]
"""Sources by name."""


class SourcesSettings(ReaderSettings):
    """Several sources, whose records follow each other."""

    module: ClassVar[str] = ".sources:SourcesReader"

    by_name: Sources
    """The sources by name."""

    @model_serializer
    def _dump(self, info: SerializationInfo) -> dict[str, Any]:
        """Return the sources by name."""
        return {name: dumped(source, info) for name, source in self.by_name.items()}


class Split(RecordSource):
    """Records of one split: exactly one reader, named by its key, or `sources`."""

    @classmethod
    def keyed(cls) -> Mapping[str, Any]:
        """Return the settings of each reader by its name, and sources."""
        return {**super().keyed(), SOURCES: Sources}

    @classmethod
    def names(cls) -> list[str]:
        """Return the keys."""
        return [*super().names(), SOURCES]

    @classmethod
    def form(cls, name: str) -> Any:
        """Return the form of the value of a key."""
        return Sources if name == SOURCES else super().form(name)

    @property
    def sources(self) -> Mapping[str, RecordSource]:
        """The sources by name; empty if the split has one without a name."""
        return self.settings.by_name if isinstance(self.settings, SourcesSettings) else {}

    def by_place(self) -> dict[tuple[str, ...], RecordSource]:
        """Return every source by its place in the split."""
        if not self.sources:
            return {(): self}
        return {(SOURCES, name): source for name, source in self.sources.items()}

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return the JSON Schema: a key for each reader, and the sources."""
        record = super().__get_pydantic_json_schema__(schema, handler)
        record["properties"][SOURCES] = {
            "description": "Several sources by name, each with one reader; see `mixture`.",
            "type": "object",
            "minProperties": 1,
            "additionalProperties": schema_of(RecordSource, handler),
        }
        return record


def reader_of(split: RecordSource, root: str) -> Reader:
    """Return the reader of a split, or of one of its sources.

    Raises:
        InputError: the reader of an installed package cannot be imported.
    """
    reader: Reader = implementation_of(split.settings, Reader)(split.settings, root)
    return reader
