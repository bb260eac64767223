"""Datasets of the Hugging Face hub, at a fixed revision; needs the `datasets` library."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ....specs.findings import InputError
from .reader import Reader, Record, refuse_missing, required


class HubReader(Reader):
    """Reader of one split of a dataset of the Hugging Face Hub."""

    def parts(self) -> int:
        """Return 1: a split is one part."""
        return 1

    def records(self, part: int, fields: Sequence[str]) -> Iterator[Record]:  # noqa: ARG002
        """Yield each row as a record.

        Raises:
            InputError: the library is missing, or the dataset cannot be loaded, lacks a field or
                has no rows.
        """
        settings = self.settings
        location = f"{settings.name}@{settings.revision[:8]}, split {settings.split}"
        datasets = required("datasets", "hub", location)
        try:
            data: Any = datasets.load_dataset(
                settings.name, settings.config, split=settings.split, revision=settings.revision
            )
        except Exception as error:  # the library raises many types
            text = str(error).partition("\n")[0]
            raise InputError(
                f"the dataset cannot be loaded: {type(error).__name__}: {text:.200}",
                location=location,
                help="check name, config, split and revision, and the network connection",
            ) from error
        for field in fields:
            refuse_missing(field, list(data.column_names), location)
        if not len(data):
            raise InputError("the split has no rows", location=location, help="name another split")
        chosen = data.select_columns(list(dict.fromkeys(fields))) if fields else data
        for number, row in enumerate(chosen, start=1):
            yield Record(row, f"{location}, row {number}")
