"""Spec: what `weft.load` returns, a loaded spec that can be varied; no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...specs.load import LoadedSpec, load
from .swap import swap


@dataclass(frozen=True, slots=True)
class Spec(LoadedSpec):
    """A spec with the values that were set from outside."""

    written: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """The variant as a file would hold it, if it came from `swap`."""

    def swap(self, select: str, use: str, /, **params: Any) -> Spec:
        """Return a variant in which some blocks are another one; this spec stays as it is.

        Args:
            select: which blocks: a path with `*` and `**`, and `[key=value]`.
            use: the block that takes their place, such as `grouped_query_attention@1`.
            **params: params of the new block; what both blocks have is kept.

        Raises:
            InputError: the selection cannot be read, or names something else.
            SpecError: it selects nothing, or the variant does not check.

        >>> spec = load_spec("transformer-base")
        >>> gqa = spec.swap("decoder.**[use=attention@1]", "grouped_query_attention@1", kv_heads=2)
        >>> gqa.written["patch"][0]["expect"]
        2
        """
        made = swap(self, select, use, params)
        held = made.spec
        return Spec(held.form, held.source, held.overrides, held.origins, made.child)


def load_spec(name: str | Path, params: Mapping[str, Any] | None = None) -> Spec:
    """Read a spec file or a shipped spec.

    Args:
        name: a path, or a shipped name such as `transformer-base`.
        params: values that win over the spec's own params.

    Raises:
        InputError: no such file.
        SpecError: the text or its form is wrong.
    """
    held = load(name, params)
    return Spec(held.form, held.source, held.overrides, held.origins)
