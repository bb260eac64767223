"""Studies as a kind of file that `weft check`, `weft schema` and editors know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ...plugin import CheckedDocument, FileKind, Source


class StudyDocument(FileKind):
    """A study: a table of runs that are compared."""

    folders: ClassVar[tuple[str, ...]] = ("studies",)

    def check(
        self, value: Any, source: Source, overrides: Mapping[str, Any] | None = None
    ) -> CheckedDocument:
        """Check the settings of a study; `weft study check` also checks its rows."""
        from .loading import study_of  # noqa: PLC0415 - loads torch

        study = study_of(value, source, overrides)
        summary = f"{study.name}: valid; 'weft study check {source}' checks its rows"
        return CheckedDocument([], summary)

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON Schema with the installed metrics."""
        from .loading import study_schema  # noqa: PLC0415 - loads torch

        return study_schema()
