"""Settings of search that other searches share, without those that have no effect."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from ...specs.findings import did_you_mean
from ...specs.wording import SettingError
from ..decode.settings import SearchSettings
from .predictor import PredictorSettings


class Searching(PredictorSettings, SearchSettings):
    """Settings of `SearchSettings`, of which some have no effect on a predictor."""

    idle: ClassVar[frozenset[str]] = frozenset()
    """Settings without effect, which a run must not set."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_idle(cls, value: Any) -> Any:
        """Refuse settings without effect.

        Raises:
            SettingError: there is one.
        """
        for name in value if isinstance(value, dict) else ():
            if name in cls.idle:
                kind = cls.model_fields["type"].default
                known = cls.model_fields.keys() - cls.idle
                msg = f"'{name}' has no effect on the predictor '{kind}'"
                raise SettingError(msg, name, help_=f"remove it; {did_you_mean('', known)}")
        return value

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
        own = self.model_dump(include=set(SearchSettings.model_fields))
        return SearchSettings(**own)
