"""Settings of search that other searches share, without those that have no effect."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from pydantic import (
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from ....specs.findings import did_you_mean
from ....specs.wording import SettingError
from ..settings import SearchSettings
from .predictor import PredictorSettings, Reads


class Searching(PredictorSettings, SearchSettings):
    """Settings of `SearchSettings`, of which some have no effect on a predictor."""

    reads: ClassVar[Reads] = "fixed"

    idle: ClassVar[frozenset[str]] = frozenset()
    """Settings without effect, which a run must not set."""

    @model_validator(mode="after")
    def _refuse_idle(self) -> Self:
        """Refuse settings without effect.

        Raises:
            SettingError: there is one.
        """
        for name in sorted(self.model_fields_set & self.idle):
            known = type(self).model_fields.keys() - self.idle
            msg = f"'{name}' has no effect on the predictor '{self.type}'"
            raise SettingError(msg, name, help_=f"remove it; {did_you_mean('', known)}")
        return self

    @model_serializer(mode="wrap")
    def _without_idle(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out the settings without effect, so that a stored run can be read again."""
        return {key: value for key, value in handler(self).items() if key not in self.idle}

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return the JSON Schema without the settings that have no effect."""
        found = handler.resolve_ref_schema(handler(schema))
        properties = found.get("properties", {})
        found["properties"] = {key: one for key, one in properties.items() if key not in cls.idle}
        return found

    def search(self) -> SearchSettings:
        """Return the search settings."""
        return SearchSettings(**{key: getattr(self, key) for key in SearchSettings.model_fields})
