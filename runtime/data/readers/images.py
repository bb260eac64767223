"""Images: a folder with one sub-folder for each class, or arrays in `.npz` files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from ....specs.findings import InputError
from ..array_files import arrays_of, names_of
from ..text_files import refuse_missing_file, resolve
from .reader import Reader, Record, refuse_missing

FIELDS = ("image", "class")
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff", ".webp")
"""Endings of image files, besides `.npy`."""


class ImagesReader(Reader):
    """Reader of images and their classes."""

    def parts(self) -> int:
        """Return the number of folders or of arrays."""
        return len(self.settings.folders or self.settings.arrays)

    def files(self) -> Mapping[str, Path]:
        """Return all images, or the files of arrays.

        Raises:
            InputError: a folder or file is outside of the root.
        """
        if self.settings.arrays:
            return {name: resolve(self.root, name) for name in self.settings.arrays}
        root = Path(self.root).resolve()
        return {
            path.relative_to(root).as_posix(): path
            for part in range(self.parts())
            for path, _ in self._images(part)
        }

    def records(self, part: int, fields: Sequence[str]) -> Iterator[Record]:
        """Yield the path of each image (`image`) and its class, or a row of each array.

        Raises:
            InputError: a folder has no images, a file is damaged, arrays have different numbers
                of rows, or there is no such field.
        """
        if self.settings.arrays:
            yield from self._rows(part, fields)
            return
        for field in fields:
            refuse_missing(field, FIELDS, f"images: {self.settings.folders[part]}")
        has_images = False
        for path, name in self._images(part):
            has_images = True
            yield Record({"image": path, "class": name}, str(path))
        if not has_images:
            raise InputError(
                "the folder has no images",
                location=str(resolve(self.root, self.settings.folders[part])),
                help="put images into one sub-folder for each class",
            )

    def _images(self, part: int) -> Iterator[tuple[Path, str]]:
        """Yield each image of a folder with its class, sorted by name.

        Raises:
            InputError: the folder does not exist, or an image is outside of the root.
        """
        folder = resolve(self.root, self.settings.folders[part])
        if not folder.is_dir():
            raise InputError(
                f"no folder '{self.settings.folders[part]}'",
                location=str(Path(self.root).resolve()),
                help="name a folder below the data root",
            )
        for inner in sorted(child for child in folder.iterdir() if child.is_dir()):
            for path in sorted(inner.rglob("*")):
                if path.suffix.lower() in (*SUFFIXES, ".npy"):
                    yield resolve(self.root, path), inner.name

    def _rows(self, part: int, fields: Sequence[str]) -> Iterator[Record]:
        """Yield a row of each array of an `.npz` file.

        Raises:
            InputError: the file is damaged, or its arrays do not fit together.
        """
        path = resolve(self.root, self.settings.arrays[part])
        refuse_missing_file(path)
        try:
            with path.open("rb") as file:
                names = names_of(file)
                for field in fields:
                    refuse_missing(field, names, str(path))
                file.seek(0)
                arrays = arrays_of(file, path.stat().st_size, fields)
        except (OSError, ValueError) as error:
            problem = f"not an .npz file of arrays: {str(error).partition(chr(10))[0]:.200}"
            raise InputError(
                problem, location=str(path), help="write it with numpy.savez"
            ) from error
        rows = {field: len(array) if array.ndim else 0 for field, array in arrays.items()}
        for field, count in rows.items():
            first = fields[0]
            if count != rows[first]:
                raise InputError(
                    f"{rows[first]} rows of '{first}' but {count} of '{field}'",
                    location=str(path),
                    help="the first axis of all arrays counts the rows",
                )
        if not rows or not next(iter(rows.values())):
            raise InputError(
                "the file has no rows", location=str(path), help="name a file with rows"
            )
        for number in range(rows[fields[0]]):
            values = {field: _plain(array[number]) for field, array in arrays.items()}
            yield Record(values, f"{path}, row {number + 1}")


def _plain(value: object) -> object:
    """Return a text or number of an array as a Python value; arrays stay arrays."""
    return value.item() if isinstance(value, np.generic) else value
