"""Parse and validate the patches of a child spec."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..findings import did_you_mean, pointer
from .select import SelectError, Selection, read_selection

MOST = 256
"""Maximum number of patches in a file."""
DEEPEST_KEY = 8
"""Maximum number of names in a dotted key."""
ACTIONS = ("set", "replace", "insert_before", "insert_after", "remove")
INTERCEPTED = "@"
"""In the wires of an inserted node: the value at the place where it is inserted."""

_EXTRA_KEYS = {
    "insert_before": ("port", "output"),
    "insert_after": ("port", "output"),
    "remove": ("through",),
}
"""Additional keys that each action allows."""

Report = Callable[..., None]
"""Called with the fields of a finding, except its file."""
Key = tuple[str, ...]
"""The names of a dotted key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """One patch: a selection and an action."""

    index: int
    """Index in the file's list of patches."""
    selection: Selection
    action: str
    value: Any
    """Value of the action's key."""
    expect: int | None = None
    """Required number of selected places; None means at least one."""
    port: str = ""
    """The wire or output at which a node is inserted; `""` if there is only one."""
    output: str = "y"
    """The output of an inserted node that replaces the intercepted value."""
    through: str = ""
    """The port of a removed node whose value its readers read instead."""

    def at(self, *keys: str) -> str:
        """Return the JSON Pointer of a key inside the patch."""
        return pointer("patch", self.index, *keys)

    @property
    def keys(self) -> list[tuple[Key, str]]:
        """The dotted keys that the patch sets or removes, each with its pointer."""
        texts = self.value if isinstance(self.value, Mapping | list) else ()
        return [
            (
                tuple(key.split(".")),
                self.at(self.action, str(i) if self.action == "remove" else key),
            )
            for i, key in enumerate(texts)
        ]

    @property
    def inserted(self) -> tuple[str, dict[str, Any]]:
        """Name and record of the inserted node."""
        [(name, record)] = self.value.items()
        return name, dict(record)


def read_patches(value: Any, report: Report) -> list[Patch]:
    """Return the valid patches of a file; report and omit the invalid ones."""
    if not isinstance(value, list):
        report(code="S04", at="/patch", problem="'patch' is not a list", help="write a list")
        return []
    if len(value) > MOST:
        report(
            code="X08",
            at="/patch",
            problem=f"the file has {len(value)} patches, more than {MOST}",
            help="select several nodes with one patch, or extend in two steps",
        )
        return []
    read = [_read_patch(written, index, report) for index, written in enumerate(value)]
    return [patch for patch in read if patch is not None]


def _read_patch(written: Any, index: int, report: Report) -> Patch | None:
    at = pointer("patch", index)
    if not isinstance(written, dict):
        report(code="S04", at=at, problem="a patch is not an object", help="write an object")
        return None
    actions = [key for key in ACTIONS if key in written]
    extra = _EXTRA_KEYS.get(actions[0], ()) if len(actions) == 1 else ("port", "output", "through")
    allowed = ("select", "expect", *(actions or ACTIONS), *extra)
    sound = True
    for key in written:
        if key not in allowed:
            context = f"in a patch with '{actions[0]}'" if len(actions) == 1 else "in a patch"
            _wrong(report, "S03", at + pointer(key), f"unknown key '{key}' {context}", key, allowed)
            sound = False
    if len(actions) != 1 and (sound or actions):
        present = " and ".join(f"'{key}'" for key in actions) or "none"
        report(
            code="X05",
            at=at,
            problem=f"a patch has exactly one action, and this patch has {present}",
            help=f"write one of {', '.join(ACTIONS)}; use one patch for each",
        )
    selection = _read_select(written, at, report)
    if len(actions) != 1 or not _sound_values(written, actions[0], at, report):
        return None
    if selection is None or not sound:
        return None
    return Patch(
        index=index,
        selection=selection,
        expect=written.get("expect"),
        action=actions[0],
        value=written[actions[0]],
        **{key: written[key] for key in extra if key in written},
    )


def _wrong(
    report: Report, code: str, at: str, problem: str, word: str, candidates: tuple[str, ...]
) -> None:
    report(code=code, at=at, problem=problem, help=did_you_mean(word, candidates))


def _read_select(written: Mapping[str, Any], at: str, report: Report) -> Selection | None:
    text = written.get("select")
    if "select" not in written:
        report(code="S04", at=at, problem="key 'select' is missing", help="add 'select'")
    elif not isinstance(text, str):
        report(
            code="S04", at=f"{at}/select", problem="'select' is not a string", help="write a string"
        )
    else:
        try:
            return read_selection(text)
        except SelectError as error:
            report(code="X06", at=f"{at}/select", problem=str(error), help=error.help)
    return None


def _sound_values(written: Mapping[str, Any], action: str, at: str, report: Report) -> bool:
    """Return whether the values of a patch have the right types, and report those that do not."""
    wrong: list[tuple[str, str]] = []
    expect = written.get("expect", 1)
    if isinstance(expect, bool) or not isinstance(expect, int) or expect < 1:
        wrong.append(("expect", "a positive integer"))
    wrong += [
        (key, "the name of a port")
        for key in ("port", "output", "through")
        if key in written and not (isinstance(written[key], str) and written[key])
    ]
    expected = _WANTED[action]
    if not _FORMS[action](written[action]):
        wrong.append((action, expected))
    elif action in ("set", "remove"):
        wrong += [
            (action, expected)
            for key in _dotted(written[action])
            if not all(key.split(".")) or key.count(".") >= DEEPEST_KEY
        ][:1]
    for key, what in wrong:
        report(
            code="S04",
            at=at + pointer(key),
            problem=f"'{key}' is not {what}",
            help=f"write {what}",
        )
    return not wrong and _disjoint_keys(written[action], action, at, report)


def _disjoint_keys(value: Any, action: str, at: str, report: Report) -> bool:
    """Return whether no dotted key of a patch is inside another, and report one that is."""
    keys = {tuple(key.split(".")) for key in _dotted(value)} if action in _DOTTED else set()
    for key in sorted(keys):
        outer = next((key[:n] for n in range(1, len(key)) if key[:n] in keys), None)
        if outer:
            report(
                code="X03",
                at=at + pointer(action),
                problem=f"'{'.'.join(key)}' is inside '{'.'.join(outer)}', also written here",
                help="write the inner value inside the outer one",
            )
            return False
    return True


def _dotted(value: Any) -> list[str]:
    return list(value) if isinstance(value, dict | list) else []


def _is_insert(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and len(value) == 1
        and all(isinstance(node, dict) for node in value.values())
    )


_DOTTED = ("set", "remove")
_FORMS: dict[str, Callable[[Any], bool]] = {
    "set": lambda value: isinstance(value, dict) and bool(value),
    "replace": lambda value: isinstance(value, dict),
    "insert_before": _is_insert,
    "insert_after": _is_insert,
    "remove": lambda value: (
        value is True
        or (isinstance(value, list) and bool(value) and all(isinstance(k, str) for k in value))
    ),
}
_WANTED = {
    "set": "an object of dotted keys, such as {'params.heads': 4}",
    "replace": "an object with 'use'",
    "insert_before": "an object with the new node's name, such as {'norm': {'use': 'rms_norm@1'}}",
    "insert_after": "an object with the new node's name, such as {'norm': {'use': 'rms_norm@1'}}",
    "remove": "true, or a list of dotted keys",
}
