"""Number columns: one number of each row, for regression."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ....graphs.ir.value_type import ValueType
from ..shards.arrays import ArrayField
from .column import Arrays, Column
from .column_settings import BATCH
from .noise import Noise
from .values import number_of


class NumberColumn(Column):
    """One finite number of each row."""

    @property
    def inputs(self) -> Mapping[str, ValueType]:
        """Numbers, B."""
        return {self.name: ValueType("f", (BATCH,))}

    @property
    def fields(self) -> Mapping[str, ArrayField]:
        """The number."""
        return {"": ArrayField("<f4")}

    def encode(self, value: Any) -> Mapping[str, NDArray[Any]]:
        """Return a number as float32.

        Raises:
            InputError: the value is not a finite number.
        """
        return {"": np.array(number_of(value, self.name), dtype=np.float32)}

    def collate(
        self,
        arrays: Arrays,
        rows: NDArray[np.int64],
        collated: Mapping[str, Tensor],  # noqa: ARG002
        noise: Noise | None = None,  # noqa: ARG002
    ) -> dict[str, Tensor]:
        """Return numbers, B, float32."""
        return {self.name: torch.from_numpy(arrays[""].items[rows].astype(np.float32))}

    def decode(self, prediction: Any) -> float:
        """Return the number."""
        return float(prediction)
