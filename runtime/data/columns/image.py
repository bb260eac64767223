"""Image columns: images of one size as floats, channels first."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ....graphs.ir.value_type import ValueType
from ....specs.findings import InputError
from ..array_files import array_of
from ..readers.reader import required
from ..shards.arrays import ArrayField
from .column import Arrays, Column
from .column_settings import BATCH
from .noise import Noise

if TYPE_CHECKING:
    from .column_settings import ImageSettings

MODES = {1: "L", 3: "RGB", 4: "RGBA"}
"""Number of channels to the mode of Pillow."""
AXES = 3
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "PPM", "TIFF", "WEBP")
"""Formats of image files; Pillow would start another program for some others."""


class ImageColumn(Column):
    """Images of one size."""

    settings: ImageSettings

    @property
    def inputs(self) -> Mapping[str, ValueType]:
        """Images, B x C x H x W."""
        return {self.name: ValueType("f", (BATCH, *self.settings.size))}

    @property
    def fields(self) -> Mapping[str, ArrayField]:
        """The stored values."""
        dtype = {"uint8": "|u1", "float32": "<f4"}[self.settings.dtype]
        return {"": ArrayField(dtype, tuple(self.settings.size))}

    def encode(self, value: Any) -> Mapping[str, NDArray[Any]]:
        """Return an image with its channels first.

        Args:
            value: path of an image or a `.npy` file, an array [C H W] or [H W], or an image of
                Pillow.

        Raises:
            InputError: the file cannot be read, or the image has another size or type.
        """
        location = str(value) if isinstance(value, Path) else ""
        image = self._array(value, location)
        if image.ndim == AXES - 1:
            image = image[None]
        self._refuse_other(image.shape, location)
        if image.dtype != np.dtype(self.settings.dtype):
            raise InputError(
                f"the image has values of type {image.dtype}, not {self.settings.dtype}",
                location=location,
                help="convert it, or change 'dtype' of the column",
            )
        if image.dtype.kind == "f" and not np.isfinite(image).all():
            raise InputError("the image has values that are not finite", location=location)
        return {"": image}

    def _refuse_other(self, size: tuple[int, ...], location: str) -> None:
        """Refuse an image of another size.

        Raises:
            InputError: it has another size.
        """
        if size != tuple(self.settings.size):
            raise InputError(
                f"the image has the size {_written(size)}, not {_written(self.settings.size)}",
                location=location,
                help="resize the image, or change 'size': channels, height, width",
            )

    def _array(self, value: Any, location: str) -> NDArray[Any]:
        """Return the values of an image.

        Raises:
            InputError: the file cannot be read.
        """
        if isinstance(value, np.ndarray):
            return value
        if isinstance(value, list):
            try:
                self._refuse_out_of_range(np.array(value))
                return np.array(value, dtype=self.settings.dtype)
            except (OverflowError, TypeError, ValueError) as error:
                raise InputError(
                    f"the value of '{self.name}' is not an array of {self.settings.dtype}: {error}",
                    help="write a list of rows of numbers, all of the same length",
                ) from error
        if isinstance(value, Path) and value.suffix == ".npy":
            try:
                with value.open("rb") as file:
                    return self._stored(file, value.stat().st_size)
            except (OSError, ValueError) as error:
                problem = f"the array cannot be read: {error}"
                raise InputError(problem, location=location, help="copy the file again") from error
        if isinstance(value, Path):
            library = required("PIL.Image", "images", location)
            try:
                with _quiet(library), library.open(value, formats=FORMATS) as image:
                    return self._pixels(image, location)
            except (OSError, ValueError, SyntaxError, library.DecompressionBombError) as error:
                problem = f"the image cannot be read: {error}"
                raise InputError(problem, location=location, help="copy the file again") from error
        if hasattr(value, "convert"):  # an image of Pillow, as the hub reader gives it
            return self._pixels(value, location)
        raise InputError(
            f"the value of '{self.name}' is {value!r:.60}, not an image",
            help="name the field of the images as 'from' of the column",
        )

    def _stored(self, file: IO[bytes], size: int) -> NDArray[Any]:
        """Return the array of an `.npy` file, with or without an axis of one channel.

        Raises:
            ValueError: it is damaged, or has another size.
        """
        shape = tuple(self.settings.size)
        shapes = (shape, shape[1:]) if shape[0] == 1 else (shape,)
        return array_of(file, size, shapes)

    def _refuse_out_of_range(self, numbers: NDArray[Any]) -> None:
        """Refuse numbers that the type cannot hold; NumPy 1 would store others in their place.

        Raises:
            OverflowError: a number is out of range.
        """
        kind = np.dtype(self.settings.dtype)
        if kind.kind in "iu" and numbers.size:
            limits = np.iinfo(kind)
            if numbers.min() < limits.min or numbers.max() > limits.max:
                message = f"a number is not from {limits.min} to {limits.max}"
                raise OverflowError(message)

    def _pixels(self, image: Any, location: str) -> NDArray[Any]:
        """Return the values of an image of Pillow, channels first.

        Its size is compared before it is unpacked: 20 kB may hold 13,000 x 13,000 pixels.

        Raises:
            InputError: it has another size, or more than 8 bits for each value.
        """
        channels = self.settings.size[0]
        if channels not in MODES:
            raise InputError(
                f"an image file cannot have {channels} channels",
                help="set 'size' to 1, 3 or 4 channels, or use arrays",
            )
        if image.mode[0] in "IF":
            raise InputError(
                f"the image has more than 8 bits for each value (mode {image.mode})",
                help="convert it to 8 bits, or store arrays and set 'dtype' to 'float32'",
            )
        width, height = image.size
        self._refuse_other((channels, height, width), location)
        pixels = np.asarray(image.convert(MODES[channels]))
        return pixels[None] if pixels.ndim == AXES - 1 else np.moveaxis(pixels, -1, 0)

    def collate(
        self,
        arrays: Arrays,
        rows: NDArray[np.int64],
        collated: Mapping[str, Tensor],  # noqa: ARG002
        noise: Noise | None = None,  # noqa: ARG002
    ) -> dict[str, Tensor]:
        """Return images, B x C x H x W, float32, normalized."""
        settings = self.settings
        images = torch.from_numpy(arrays[""].items[rows].astype(np.float32))
        if settings.dtype == "uint8":
            images /= 255
        if settings.mean is not None:
            images -= torch.tensor(settings.mean)[:, None, None]
        if settings.std is not None:
            images /= torch.tensor(settings.std)[:, None, None]
        return {self.name: images}

    def decode(self, prediction: Any) -> NDArray[Any]:
        """Return the values of an image as an array."""
        return np.asarray(prediction)


@contextmanager
def _quiet(library: Any) -> Iterator[None]:
    """Hide Pillow's warning about many pixels, whose number is compared before they are read."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", library.DecompressionBombWarning)
        yield


def _written(shape: Sequence[int]) -> str:
    return "[" + " ".join(map(str, shape)) + "]"
