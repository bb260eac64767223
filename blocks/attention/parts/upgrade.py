"""Upgrade uses of attention@1 and grouped_query_attention@1 to attention@2.

Params of relative positions, windows and head gates become blocks in slots.  A patch that was
written for version 1 may set such params in a use of version 2; the same function then changes
the slots of that use.
"""

from __future__ import annotations

from typing import Any

_PARAMS = {
    "rotary": {"rotary_base": "base"},
    "alibi": {},
    "relative_bias": {"buckets": "buckets", "max_distance": "max_distance", "causal": "causal"},
    "relative_key": {"reach": "reach", "causal": "causal"},
}
"""Value of `position` to its params, each with its name in the new block."""
_BLOCKS = {name: f"{name}@1" for name in _PARAMS} | {"relative_key": "relative_keys@1"}
_OWN = frozenset(name for params in _PARAMS.values() for name in params) - {"causal"}

REMOVED = frozenset({"position", "window", "head_gates"}) | _OWN
"""Params of version 1 that became blocks in slots."""


def upgrade(use: dict[str, Any]) -> dict[str, Any]:
    """Return a use of attention@2 that computes the same.

    Args:
        use: a use of an older version, or one of attention@2 in which a patch set older params;
            with the wires of its node.

    Raises:
        ValueError: a param that chooses a block is an expression, so the block is unknown.
    """
    params, fill = dict(use.get("params", {})), dict(use.get("fill", {}))
    if "memory" in use.get("in", {}) and str(use.get("use", "")).endswith("@1"):
        # Version 1 computed without them where it read a memory.
        params = {k: v for k, v in params.items() if k not in ("causal", "position", "window")}
    _position(params, fill)
    if "window" in params:
        window = params.pop("window")
        if window is not None:
            _fill(fill, "mask", {"use": "window@1", "params": {"distance": window}})
        elif _use(fill, "mask") == "window@1":
            del fill["mask"]
    if "head_gates" in params:
        gates = params.pop("head_gates")
        if _known(gates, "head_gates"):
            _fill(fill, "output", {"use": "head_gates@1"})
        elif _use(fill, "output") == "head_gates@1":
            del fill["output"]
    made = {key: value for key, value in use.items() if key not in ("params", "fill")}
    return made | ({"params": params} if params else {}) | ({"fill": fill} if fill else {})


def _position(params: dict[str, Any], fill: dict[str, Any]) -> None:
    """Move the params of relative positions to a block in the slot `position`."""
    chosen = params.pop("position", None)
    if chosen is None:
        before = _use(fill, "position")
        kind = next((name for name, key in _BLOCKS.items() if key == before), "")
        old = fill.get("position", {}).get("params", {}) if kind else {}
    else:
        kind, old = str(_known(chosen, "position")), {}
        fill.pop("position", None)
    given = {
        name: params[old_name]
        for old_name, name in _PARAMS.get(kind, {}).items()
        if old_name in params and (old_name != "causal" or params[old_name] is not False)
    }
    if kind in _BLOCKS and (chosen is not None or given):
        record = {"use": _BLOCKS[kind], "params": {**old, **given}}
        fill["position"] = record if record["params"] else {"use": _BLOCKS[kind]}
    for name in _PARAMS.get(kind, {}):
        if name != "causal":
            params.pop(name, None)


def _known(value: Any, name: str) -> Any:
    """Return the value of a param.

    Raises:
        ValueError: it is an expression.
    """
    if isinstance(value, str) and value.startswith("="):
        msg = f"'{name}' is an expression"
        raise ValueError(msg)
    return value


def _use(fill: dict[str, Any], slot: str) -> str:
    """Return the block in a slot; empty if there is none."""
    record = fill.get(slot)
    return str(record.get("use", "")) if isinstance(record, dict) else ""


def _fill(fill: dict[str, Any], slot: str, record: dict[str, Any]) -> None:
    """Set a slot.

    Raises:
        ValueError: another block fills it.
    """
    if _use(fill, slot) not in ("", record["use"]):
        msg = f"the slot '{slot}' has another block"
        raise ValueError(msg)
    fill[slot] = record
