"""LoRA of PEFT's library: low-rank matrices in a folder of their own, added to a base model.

The format is that of `save_pretrained` of peft: `adapter_config.json` and
`adapter_model.safetensors`, in which a linear map has the matrices `lora_A` [r, inputs] and
`lora_B` [outputs, r].

Source: Hu et al. 2022, section 4.1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import Tensor

from ....plugin import InputError
from ....runtime.system.strangers import all_tensors_of
from .config import read_object
from .table import table_name

CONFIG = "adapter_config.json"
FILE = "adapter_model.safetensors"
PREFIX = "base_model.model."
"""Prefix of the names of all tensors."""
_PARTS = ("lora_A.weight", "lora_B.weight")
_PLAIN: Mapping[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "bias": ("none", None),
    "use_dora": (False, None),
    "lora_bias": (False, None),
    "modules_to_save": (None, []),
    "target_parameters": (None, []),
    "trainable_token_indices": (None, []),
    "alora_invocation_tokens": (None, []),
}
"""Settings to their supported values; a missing setting is null."""
_NAME = re.compile(r"[\w.]+")


class LoraAdapter:
    """The low-rank matrices of a folder, by the name of the tensor to which they are added."""

    def __init__(self, folder: Path, prefix: str = "", endings: Mapping[str, str] = {}) -> None:
        """Read the folder.

        Args:
            folder: folder written by `save_pretrained` of peft.
            prefix: prefix of the names of tensors, as in a table.
            endings: suffixes of these names to replace, as in a table.

        Raises:
            InputError: a file is missing or damaged, or the adapter is not plain LoRA.
        """
        self.folder = folder
        self._config = read_object(folder, CONFIG)
        self._unread: set[str] = set()
        for key, values in _PLAIN.items():
            value = self._config.get(key)
            if value not in values:
                raise InputError(
                    f"'{key}' is {value!r}, and only plain LoRA can be imported",
                    location=f"{folder / CONFIG}#/{key}",
                    help="merge it with merge_and_unload of peft, and save the merged model",
                )
        try:
            tensors = all_tensors_of(folder, FILE)
        except (SafetensorError, OSError) as error:
            problem = f"the matrices are missing or damaged: {error}"
            raise InputError(
                problem,
                location=str(folder / FILE),
                help="give the folder of an adapter that peft saved as safetensors",
            ) from error
        modules = dict.fromkeys(name.partition(".lora_")[0] for name in tensors)
        expected = {f"{module}.{part}" for module in modules for part in _PARTS}
        if odd := sorted(expected ^ set(tensors)):
            raise InputError(
                f"'{odd[0]}' is {'missing' if odd[0] in expected else 'not a part of LoRA'}",
                location=str(folder / FILE),
                help="adapters with other parts than lora_A and lora_B of linear maps have no "
                "counterpart; merge it with merge_and_unload of peft",
            )
        self._pairs = {}
        for module in modules:
            a, b = (tensors[f"{module}.{part}"] for part in _PARTS)
            if (a.dim(), b.dim()) != (2, 2) or a.size(0) != b.size(1):
                raise InputError(
                    f"'{module}' has matrices of shapes {list(a.shape)} and {list(b.shape)}",
                    location=str(folder / FILE),
                    help="lora_A is [r, inputs] and lora_B [outputs, r]",
                )
            name = module.removeprefix(PREFIX)
            factor = self._alpha(name) / a.size(0) ** (0.5 if self._set("use_rslora") else 1)
            self._pairs[table_name(f"{name}.weight", prefix, endings)] = (factor, a, b)
        self._unread = set(self._pairs)

    def _set(self, key: str) -> bool:
        return self._config.get(key) is True

    def _alpha(self, module: str) -> float:
        """Return the scale of a module.

        Raises:
            InputError: it is not a number, or is given for a pattern of names.
        """
        alpha = self._config.get("lora_alpha", 8)
        patterns = self._config.get("alpha_pattern") or {}
        for key, value in patterns.items() if isinstance(patterns, dict) else ():
            if not _NAME.fullmatch(key):
                raise InputError(
                    f"'{key}' is a regular expression, and only names are supported",
                    location=f"{self.folder / CONFIG}#/alpha_pattern",
                    help="list the names of the modules",
                )
            if module == key or module.endswith(f".{key}"):
                alpha = value
                break
        if isinstance(alpha, bool) or not isinstance(alpha, int | float):
            raise InputError(
                f"the scale of '{module}' is {alpha!r}, not a number",
                location=f"{self.folder / CONFIG}#/lora_alpha",
                help="write a number",
            )
        return float(alpha)

    def added_to(self, name: str, tensor: Tensor) -> Tensor:
        """Return a tensor with the product of its matrices added, if it has some.

        Raises:
            InputError: the shapes do not fit.
        """
        if name not in self._pairs:
            return tensor
        self._unread.discard(name)
        factor, a, b = self._pairs[name]
        # In float64, so that the sum is rounded once.
        product = factor * (b.double() @ a.double())
        product = product.t() if self._set("fan_in_fan_out") else product
        if product.shape != tensor.shape:
            raise InputError(
                f"the adapter of '{name}' has shape {list(product.shape)}, and the tensor "
                f"{list(tensor.shape)}",
                location=str(self.folder),
                help="give the base model for which the adapter was trained",
            )
        total: Tensor = tensor.double() + product
        return total.to(tensor.dtype)

    def refuse_unread(self) -> None:
        """Check that all matrices were added.

        Raises:
            InputError: a tensor of the adapter is not in the base model.
        """
        if self._unread:
            raise InputError(
                f"the base model has no '{min(self._unread)}', which the adapter changes",
                location=str(self.folder),
                help="give the base model for which the adapter was trained",
            )
