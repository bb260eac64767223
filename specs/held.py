"""Specs in params: a param of an objective holds the spec of a model.

`"params": {"model": {"spec": "transformer-base", "params": {"layers": 2}}}` names a shipped spec or
one in the folder of the file; a complete spec may stand in place of the name, as in checkpoints.
A `patch` changes the spec as in a file that extends it.  A node with `"use": "=model"` contains
the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .composition.inherit import FOLDERS, parent_of
from .expressions import is_expression
from .form import FORMAT, holds_spec
from .load import LoadedSpec, load, load_as, load_child
from .reader import shipped_names

KEYS = ("spec", "params", "patch")
"""Keys of a value that holds a spec."""


def inlined(value: Any, source: str, loaded: LoadedSpec | None = None) -> Any:
    """Return the value of a param with the held spec written out, and those inside it.

    Args:
        value: the value of a param, of which the specs can be loaded.
        source: the file that contains it.
        loaded: the spec that it holds, if it is loaded already.
    """
    if loaded is None and holds_spec(value):
        loaded = load_held(value, source)
    if loaded is None:
        return value
    spec = loaded.value()
    if "params" in spec:
        inner = {key: inlined(param, loaded.source) for key, param in spec["params"].items()}
        spec["params"] = inner
    return {**{key: entry for key, entry in value.items() if key == "params"}, "spec": spec}


def spec_names(source: str) -> list[str]:
    """Return the names of the specs that a file can hold: shipped ones and those in its folder."""
    path = Path(source)
    beside = (sibling.stem for sibling in path.parent.glob("*.json")) if source else ()
    names = (*shipped_names(*FOLDERS), *(name for name in beside if name != path.stem))
    return list(dict.fromkeys(names))


class SpecFile(str):
    """Path of a spec that the caller has found, in place of its name."""

    __slots__ = ()


def load_held(value: Mapping[str, Any], source: str) -> LoadedSpec | None:
    """Load the spec that a param holds, without the params that are set next to it.

    Args:
        value: the value of the param.
        source: the file that contains it.

    Returns:
        The spec; None if no spec has this name.

    Raises:
        InputError: the file cannot be read.
        SpecError: the file cannot be read as a spec at all, or the patch is wrong.
    """
    reference, patch = value["spec"], value.get("patch")
    if isinstance(reference, dict):
        loaded = load_as(reference, source)
        if not patch:
            return loaded
        name = loaded.form.name
        return load_child(
            loaded, {"format": FORMAT, "name": name, "extends": name, "patch": patch}, source
        )
    path = (
        Path(reference)
        if isinstance(reference, SpecFile)
        else parent_of(str(reference), Path(source))
    )
    if path is None:
        return None
    if not patch:
        return load(path)
    child = {"format": FORMAT, "name": path.stem, "extends": path.stem, "patch": patch}
    beside = path.with_name(Path(source).name) if isinstance(reference, SpecFile) else source
    return load_as(child, str(beside))


def in_place_of(current: Any, value: Any) -> Any:
    """Return the value that replaces one of a spec.

    In place of a held spec, a name is that of another spec.  Params of the held spec that are
    expressions, such as the number of labels, belong to the objective, so they apply to the new
    spec too unless it has its own.

    Args:
        current: the value of the spec.
        value: the value that replaces it.
    """
    if not holds_spec(current):
        return value
    new = {"spec": value} if isinstance(value, str) else value
    own_params = current.get("params", {})
    if not holds_spec(new) or not isinstance(own_params, dict):
        return new
    bound = {key: param for key, param in own_params.items() if is_expression(param)}
    new_params = new.get("params", {})
    return (
        {**new, "params": {**bound, **new_params}}
        if bound and isinstance(new_params, dict)
        else new
    )
