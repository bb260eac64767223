"""Tensors of a folder: safetensors, in one file or in several, and nothing that runs.

A pickled file can run code when it is opened, so it never is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from ...specs.findings import InputError
from .config import read_object

WEIGHTS = "model.safetensors"
INDEX = f"{WEIGHTS}.index.json"
LARGEST_INDEX = 64 << 20
"""Bytes that the index of a model in several files may have."""
PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt")
"""Names of files that are not opened."""


class Tensors:
    """The tensors of a folder by name, read one at a time.

    Names are those of the table: a prefix taken off, endings replaced.
    """

    def __init__(self, folder: Path, prefix: str, endings: Mapping[str, str]) -> None:
        """Open the files; their tensors are not read yet.

        Raises:
            InputError: no weights, a damaged file, or one that lies elsewhere.
        """
        self.folder = folder
        self._open = ExitStack()
        self._held: dict[str, tuple[Any, str]] = {}
        try:
            for file in _files(folder):
                opened = self._open.enter_context(safe_open(folder / file, framework="pt"))
                for theirs in opened.keys():  # noqa: SIM118 - no mapping
                    self._hold(named(theirs, prefix, endings), opened, theirs)
        except (SafetensorError, OSError, ValueError) as error:
            self._open.close()
            problem = f"the weights are missing, damaged or cut off: {error}"
            raise InputError(problem, place=str(folder), help="copy the folder again") from error

    def _hold(self, name: str, opened: Any, theirs: str) -> None:
        """Keep where a tensor is.

        Raises:
            ValueError: there is another one of that name.
        """
        if name in self._held:
            msg = f"'{theirs}' and '{self._held[name][1]}' are both '{name}'"
            raise ValueError(msg)
        self._held[name] = opened, theirs

    def __enter__(self) -> Tensors:
        """Give the tensors."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the files."""
        self._open.close()

    def __contains__(self, name: object) -> bool:
        """Say whether there is a tensor of a name."""
        return name in self._held

    def __iter__(self) -> Iterator[str]:
        """Walk the names."""
        return iter(self._held)

    def __getitem__(self, name: str) -> Tensor:
        """Read a tensor, in float32."""
        opened, theirs = self._held[name]
        tensor: Tensor = opened.get_tensor(theirs)
        return tensor.float()

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor without reading it."""
        opened, theirs = self._held[name]
        return tuple(opened.get_slice(theirs).get_shape())


def named(theirs: str, prefix: str, endings: Mapping[str, str]) -> str:
    """Return what a table calls a tensor of theirs.

    >>> named("bert.embeddings.LayerNorm.gamma", "bert.", {".gamma": ".weight"})
    'embeddings.LayerNorm.weight'
    """
    name = theirs.removeprefix(prefix)
    for old, new in endings.items():
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


def _files(folder: Path) -> list[str]:
    """Return the names of the files with weights.

    Raises:
        InputError: there are none, or the index names a file elsewhere.
    """
    if (folder / WEIGHTS).is_file():
        return [WEIGHTS]
    index = folder / INDEX
    if not index.is_file():
        pickled = [path.name for pattern in PICKLED for path in sorted(folder.glob(pattern))]
        problem = f"the folder has neither {WEIGHTS} nor {INDEX}"
        help_ = "name the folder of a model that was saved with save_pretrained"
        if pickled:
            problem += f"; '{pickled[0]}' is a pickle, which could run code and is not opened"
            help_ = "open it where you trust it, and save it with save_pretrained(FOLDER)"
        raise InputError(problem, place=str(folder), help=help_)
    places = read_object(index, LARGEST_INDEX).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(v, str) for v in places.values()):
        raise InputError("the index has no 'weight_map' of file names", place=str(index))
    files = sorted(set(places.values()))
    for file in files:
        if Path(file).name != file or not file.endswith(".safetensors"):
            problem = f"the index names '{file}', which is no safetensors file beside it"
            raise InputError(problem, place=f"{index}#/weight_map")
        if not (folder / file).is_file():
            raise InputError(
                f"'{file}' is missing, which the index names",
                place=str(folder),
                help="copy the whole folder",
            )
    return files
