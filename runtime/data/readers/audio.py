"""Sound files that a manifest lists, with their texts or classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ....specs.findings import InputError
from ..text_files import resolve
from .delimited import DelimitedReader
from .reader import Record


class AudioReader(DelimitedReader):
    """Reader of CSV or TSV manifests of which one field is the path of a sound file."""

    def contents(self) -> Mapping[str, Path]:
        """Return the manifests and the sound files that they list.

        Raises:
            InputError: as for `records`.
        """
        name, paths = self.settings.path, dict(self.files())
        for part in range(self.parts()):
            for record in super().records(part, [name]):
                file_name = record.values[name]
                paths[file_name] = resolve(self.root, file_name)
        return paths

    def records(self, part: int, fields: Sequence[str]) -> Iterator[Record]:
        """Yield each row of the manifest, with the path of its sound file.

        Raises:
            InputError: the manifest cannot be read, or a sound file does not exist or is outside
                of the root.
        """
        name = self.settings.path
        for record in super().records(part, fields):
            if name not in fields:
                yield record
                continue
            file_name = record.values[name]
            path = resolve(self.root, file_name)
            if not path.is_file():
                raise InputError(
                    f"no file '{file_name}'",
                    location=record.location,
                    help="write paths relative to the data root",
                )
            yield Record({**record.values, name: path}, record.location)
