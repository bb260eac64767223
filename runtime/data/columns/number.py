"""Number columns: one number of each row, for regression."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ....graphs.ir.value_type import ValueType
from ....specs.findings import InputError
from ..shards.arrays import Field
from .column import BATCH, Arrays, Column, Noise

LARGEST = float(np.finfo(np.float32).max)


class NumberColumn(Column):
    """One finite number of each row."""

    @property
    def inputs(self) -> Mapping[str, ValueType]:
        """Numbers, B."""
        return {self.name: ValueType("f", (BATCH,))}

    @property
    def fields(self) -> Mapping[str, Field]:
        """The number."""
        return {"": Field("<f4")}

    def encode(self, value: Any) -> Mapping[str, NDArray[Any]]:
        """Return a number as float32.

        Raises:
            InputError: the value is not a finite number.
        """
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number) or abs(number) > LARGEST:
            raise InputError(
                f"the value of '{self.name}' is {value!r:.60}, not a finite number",
                help="write a number such as 0.5",
            )
        return {"": np.array(number, dtype=np.float32)}

    def collate(
        self,
        arrays: Arrays,
        rows: NDArray[np.int64],
        made: Mapping[str, Tensor],  # noqa: ARG002
        noise: Noise | None = None,  # noqa: ARG002
    ) -> dict[str, Tensor]:
        """Return numbers, B, float32."""
        return {self.name: torch.from_numpy(arrays[""].items[rows].astype(np.float32))}

    def decode(self, prediction: Any) -> float:
        """Return the number."""
        return float(prediction)
