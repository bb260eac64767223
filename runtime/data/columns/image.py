"""Image columns: images of one size as floats, channels first."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ....graphs.ir.value_type import ValueType
from ....specs.findings import InputError
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
        size = tuple(self.settings.size)
        if image.shape != size:
            raise InputError(
                f"the image has the size {_written(image.shape)}, not {_written(size)}",
                location=location,
                help="resize the image, or change 'size': channels, height, width",
            )
        if image.dtype != np.dtype(self.settings.dtype):
            raise InputError(
                f"the image has values of type {image.dtype}, not {self.settings.dtype}",
                location=location,
                help="convert it, or change 'dtype' of the column",
            )
        if image.dtype.kind == "f" and not np.isfinite(image).all():
            raise InputError("the image has values that are not finite", location=location)
        return {"": image}

    def _array(self, value: Any, location: str) -> NDArray[Any]:
        """Return the values of an image.

        Raises:
            InputError: the file cannot be read.
        """
        if isinstance(value, np.ndarray):
            return value
        if isinstance(value, list):
            try:
                return np.array(value, dtype=self.settings.dtype)
            except (OverflowError, TypeError, ValueError) as error:
                raise InputError(
                    f"the value of '{self.name}' is not an array of {self.settings.dtype}: {error}",
                    help="write a list of rows of numbers, all of the same length",
                ) from error
        if isinstance(value, Path) and value.suffix == ".npy":
            try:
                with value.open("rb") as raw:
                    return np.asarray(np.load(raw, allow_pickle=False))
            except Exception as error:  # numpy and zipfile raise many types
                problem = f"the array cannot be read: {error}"
                raise InputError(problem, location=location, help="copy the file again") from error
        if isinstance(value, Path):
            library = required("PIL.Image", "images", location)
            try:
                with library.open(value) as image:
                    return self._pixels(image)
            except (OSError, ValueError, SyntaxError, library.DecompressionBombError) as error:
                problem = f"the image cannot be read: {error}"
                raise InputError(problem, location=location, help="copy the file again") from error
        if hasattr(value, "convert"):  # an image of Pillow, as the hub reader gives it
            return self._pixels(value)
        raise InputError(
            f"the value of '{self.name}' is {value!r:.60}, not an image",
            help="name the field of the images as 'from' of the column",
        )

    def _pixels(self, image: Any) -> NDArray[Any]:
        """Return the values of an image of Pillow, channels first."""
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


def _written(shape: tuple[int, ...]) -> str:
    return "[" + " ".join(map(str, shape)) + "]"
