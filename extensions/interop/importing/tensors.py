"""Tensors of a folder, read from one or several safetensors files.

Pickled files are never opened, because loading them can run code.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import Tensor

from ....plugin import InputError
from ....runtime.system.strangers import has_file, tensors_of
from .adapter import LoraAdapter
from .config import read_object
from .table import table_name

WEIGHTS = "model.safetensors"
INDEX = f"{WEIGHTS}.index.json"
LARGEST_INDEX = 64 << 20
"""Maximum size in bytes of the index of a model in several files."""
PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt")
"""Patterns of pickled files, which are not opened."""


class FolderTensors:
    """The tensors of a folder by name, read one at a time.

    Names are as in the table: without the prefix, and with endings replaced.
    """

    def __init__(
        self,
        folder: Path,
        prefix: str,
        endings: Mapping[str, str],
        adapter: LoraAdapter | None = None,
    ) -> None:
        """Open the files; tensors are read on access.

        Args:
            folder: the folder.
            prefix: prefix of the names of tensors.
            endings: suffixes of these names to replace.
            adapter: LoRA that is added to the tensors.

        Raises:
            InputError: there are no weights, or a file is damaged or outside the folder.
        """
        self.folder = folder
        self._adapter = adapter
        self._open = ExitStack()
        self._entries: dict[str, tuple[Any, str]] = {}
        try:
            for file in files_of(folder):
                opened = self._open.enter_context(tensors_of(folder, file))
                for theirs in opened.keys():  # noqa: SIM118 - not a mapping
                    self._add(table_name(theirs, prefix, endings), opened, theirs)
        except (SafetensorError, OSError, ValueError) as error:
            self._open.close()
            problem = f"the weights are missing, damaged or truncated: {error}"
            raise InputError(problem, location=str(folder), help="copy the folder again") from error

    def _add(self, name: str, opened: Any, theirs: str) -> None:
        """Record the file and original name of a tensor.

        Raises:
            ValueError: there is another tensor of that name.
        """
        if name in self._entries:
            msg = f"'{theirs}' and '{self._entries[name][1]}' both map to '{name}'"
            raise ValueError(msg)
        self._entries[name] = opened, theirs

    def __enter__(self) -> FolderTensors:
        """Return the tensors."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the files."""
        self._open.close()

    def __contains__(self, name: object) -> bool:
        """Return whether there is a tensor with a name."""
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._entries)

    def __getitem__(self, name: str) -> Tensor:
        """Read a tensor, in float32."""
        opened, theirs = self._entries[name]
        tensor: Tensor = opened.get_tensor(theirs).float()
        return tensor if self._adapter is None else self._adapter.added_to(name, tensor)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor without reading it."""
        opened, theirs = self._entries[name]
        return tuple(opened.get_slice(theirs).get_shape())

    def numel(self, name: str) -> int:
        """Return the number of elements of a tensor without reading it."""
        return math.prod(self.shape(name))


def files_of(folder: Path) -> list[str]:
    """Return the names of the files with weights.

    Raises:
        InputError: there are none, or the index names a missing file or another folder.
    """
    if has_file(folder, WEIGHTS):
        return [WEIGHTS]
    index = folder / INDEX
    if not has_file(folder, INDEX):
        pickled = [path.name for pattern in PICKLED for path in sorted(folder.glob(pattern))]
        problem = f"the folder has neither {WEIGHTS} nor {INDEX}"
        help_ = "give the folder of a model that was saved with save_pretrained"
        if pickled:
            problem += f"; '{pickled[0]}' is a pickle, which could run code and is not opened"
            help_ = "if you trust the model, load it and save it with save_pretrained(FOLDER)"
        raise InputError(problem, location=str(folder), help=help_)
    places = read_object(folder, INDEX, LARGEST_INDEX).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(v, str) for v in places.values()):
        raise InputError("the index has no 'weight_map' of file names", location=str(index))
    files = sorted(set(places.values()))
    for file in files:
        if Path(file).name != file or not file.endswith(".safetensors"):
            problem = f"the index names '{file}', which is not a safetensors file in its folder"
            raise InputError(problem, location=f"{index}#/weight_map")
        if not has_file(folder, file):
            raise InputError(
                f"'{file}' is in the index but missing from the folder",
                location=str(folder),
                help="copy the complete folder",
            )
    return files
