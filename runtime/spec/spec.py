"""`Spec`, the loaded spec that `weft.load` returns; no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...specs.load import LoadedSpec, load
from .swap import swap


@dataclass(frozen=True, slots=True)
class Spec(LoadedSpec):
    """A loaded spec with its overrides."""

    written: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """The variant as file contents, if `swap` made it; otherwise empty."""

    def swap(self, select: str, use: str, /, **params: Any) -> Spec:
        """Return a variant with the selected blocks replaced; this spec does not change.

        Args:
            select: blocks to replace: a path with `*` and `**`, and `[key=value]`.
            use: the replacement block, such as `grouped_query_attention@1`.
            **params: params of the new block; params that both blocks have keep their values.

        Raises:
            InputError: the selection cannot be read, or selects other things than blocks.
            SpecError: the selection matches nothing, or the variant is invalid.

        >>> spec = load_spec("transformer-base")
        >>> gqa = spec.swap("decoder.**[use=attention@1]", "grouped_query_attention@1", kv_heads=2)
        >>> gqa.written["patch"][0]["expect"]
        2
        """
        made = swap(self, select, use, params)
        loaded = made.spec
        return Spec(loaded.form, loaded.source, loaded.overrides, loaded.origins, made.child)


def load_spec(name: str | Path, params: Mapping[str, Any] | None = None) -> Spec:
    """Read a spec file or a shipped spec.

    Args:
        name: a path, or a shipped name such as `transformer-base`.
        params: values that override the spec's own params.

    Raises:
        InputError: the file does not exist.
        SpecError: the file is not valid JSON or does not have the form of a spec.
    """
    loaded = load(name, params)
    return Spec(loaded.form, loaded.source, loaded.overrides, loaded.origins)
