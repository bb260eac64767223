"""Audio columns: mono samples between -1 and 1, padded, with a mask."""

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
from .column import Arrays, Column, ColumnContext
from .column_settings import BATCH
from .noise import Noise

if TYPE_CHECKING:
    from ..plans.lengths import RowValues
    from .column_settings import AudioSettings

LOUDEST = 1 << 15
"""Stored value that means 1.0, which is just out of range."""
_UNKNOWN = 0xFFFFFFFF
"""Size of the data of a wav file that was written to a pipe."""


class AudioColumn(Column):
    """Mono audio; stored with 16 bits for each sample."""

    settings: AudioSettings

    def __init__(self, name: str, settings: AudioSettings, context: ColumnContext) -> None:
        """Store the settings; the samples have their own time axis."""
        super().__init__(name, settings, context)
        self.axis = name

    @property
    def mask(self) -> str:
        """Name of the input that is true for samples and false for padding."""
        return f"{self.name}_mask"

    @property
    def inputs(self) -> Mapping[str, ValueType]:
        """Samples and their mask, B x N."""
        axes = (BATCH, self.name)
        return {self.name: ValueType("f", axes), self.mask: ValueType("mask", axes)}

    @property
    def fields(self) -> Mapping[str, ArrayField]:
        """The samples."""
        return {"": ArrayField("<i2", ragged=True)}

    def encode(self, value: Any) -> Mapping[str, NDArray[Any]]:
        """Return the samples of a sound file.

        Args:
            value: path of a file; an array of samples at the rate of the column; or a mapping
                with `array` and `sampling_rate`, as the hub reader gives it.

        Raises:
            InputError: the file cannot be read, is truncated, has another rate or several
                channels, or has no samples.
        """
        location = str(value) if isinstance(value, Path) else ""
        samples, rate = self._samples(value, location)
        if rate != self.settings.rate:
            raise InputError(
                f"the audio has {rate} samples per second, not {self.settings.rate}",
                location=location,
                help="convert it, such as: sox IN -r RATE OUT; or change 'rate' of the column",
            )
        if samples.ndim != 1:
            raise InputError(
                f"the audio has {samples.shape[-1]} channels, not 1",
                location=location,
                help="mix it to mono, such as: sox IN -c 1 OUT",
            )
        if not len(samples):
            raise InputError("the audio has no samples", location=location, help="remove its row")
        if not np.isfinite(samples).all():
            raise InputError("the audio has samples that are not finite", location=location)
        scaled = np.clip(np.rint(samples * LOUDEST), -LOUDEST, LOUDEST - 1)
        return {"": scaled.astype(np.int16)}

    def _samples(self, value: Any, location: str) -> tuple[NDArray[Any], int]:
        """Return samples between -1 and 1, and their rate.

        Raises:
            InputError: the value is not audio, or the file cannot be read or is truncated.
        """
        if isinstance(value, Mapping) and {"array", "sampling_rate"} <= value.keys():
            value, rate = value["array"], value["sampling_rate"]
        else:
            rate = self.settings.rate
        if isinstance(value, (list, np.ndarray)):
            try:
                return np.asarray(value, dtype=np.float64), int(rate)
            except (OverflowError, TypeError, ValueError) as error:
                raise InputError(
                    f"the value of '{self.name}' is not an array of samples: {error}",
                    help="write a list of numbers between -1 and 1",
                ) from error
        if not isinstance(value, Path):
            raise InputError(
                f"the value of '{self.name}' is {value!r:.60}, not audio",
                help="name the field of the sound files as 'from' of the column",
            )
        library = required("soundfile", "audio", location)
        try:
            refuse_truncated(value)
            with library.SoundFile(str(value)) as file:
                samples = file.read(dtype="float64")
                frames, rate = file.frames, file.samplerate
        except (OSError, RuntimeError) as error:
            problem = f"the audio cannot be read: {error}"
            raise InputError(problem, location=location, help="copy the file again") from error
        if len(samples) != frames:
            raise _truncated(location, f"{len(samples)} of {frames} samples")
        return samples, rate

    def lengths(self, arrays: Arrays) -> RowValues:
        """Return the number of samples of each row."""
        return arrays[""].lengths()

    def collate(
        self,
        arrays: Arrays,
        rows: NDArray[np.int64],
        collated: Mapping[str, Tensor],  # noqa: ARG002
        noise: Noise | None = None,  # noqa: ARG002
    ) -> dict[str, Tensor]:
        """Return samples, float32, and their mask, both B x N."""
        table, lengths = arrays[""].padded(rows, 0, dtype=np.float32)
        mask = np.arange(table.shape[1]) < lengths[:, None]
        return {self.name: torch.from_numpy(table / LOUDEST), self.mask: torch.from_numpy(mask)}

    def tokens(self, inputs: Mapping[str, Tensor]) -> Mapping[str, int]:
        """Return the number of samples."""
        count = int(inputs[self.mask].sum())
        return {self.name: count, self.mask: count}

    def decode(self, prediction: Any) -> NDArray[Any]:
        """Return samples as an array."""
        return np.asarray(prediction)


def refuse_truncated(path: Path) -> None:
    """Check that a wav file has as many bytes as its header says.

    Libraries read a truncated wav file without an error.

    Raises:
        InputError: it has fewer.
    """
    with path.open("rb") as file:
        head = file.read(12)
        if head[:4] != b"RIFF" or head[8:] != b"WAVE":
            return
        while len(chunk := file.read(8)) == 8:  # noqa: PLR2004 - bytes of name and size
            size = int.from_bytes(chunk[4:], "little")
            if chunk[:4] == b"data":
                remaining = path.stat().st_size - file.tell()
                if size != _UNKNOWN and remaining < size:
                    raise _truncated(str(path), f"{remaining} of {size} bytes of samples")
                return
            file.seek(size + size % 2, 1)
    raise _truncated(str(path), "no samples")


def _truncated(location: str, what: str) -> InputError:
    return InputError(
        f"the file is truncated: it has {what}", location=location, help="copy it again"
    )
