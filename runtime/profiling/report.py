"""Output of a profile as a table and as files in a folder."""

from __future__ import annotations

import json
from pathlib import Path

from .flame import collapsed, flame_svg
from .summary import Profile


def table(profile: Profile) -> str:
    """Return a profile as a text table, sorted by time."""
    rows = [("node", "forward ms", "backward ms", "share", "memory kept")]
    total = sum(spent.total for spent in profile.nodes.values()) + sum(profile.other.values())
    total = total or 1.0
    for path, spent in sorted(profile.nodes.items(), key=lambda pair: -pair[1].total):
        rows.append(
            (
                path,
                f"{spent.forward * 1e3:.2f}",
                f"{spent.backward * 1e3:.2f}",
                f"{spent.total / total:.1%}",
                f"{spent.memory:,}" if spent.memory else "",
            )
        )
    rows += [
        (name, f"{seconds * 1e3:.2f}", "", f"{seconds / total:.1%}", "")
        for name, seconds in sorted(profile.other.items(), key=lambda pair: -pair[1])
    ]
    width = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width[0]) if at == 0 else cell.rjust(width[at])
            for at, cell in enumerate(row)
        ).rstrip()
        for row in rows
    ]
    rule = "-" * max(map(len, lines))
    forward = sum(spent.forward for spent in profile.nodes.values())
    backward = sum(spent.backward for spent in profile.nodes.values())
    clock = "device time" if profile.device != "cpu" else "CPU time"
    footer = [
        f"wall clock   {profile.seconds * 1e3:,.1f} ms per update, mean of {profile.updates}",
        f"forward      {forward * 1e3:,.1f} ms, backward {backward * 1e3:,.1f} ms: {clock}",
        f"syncs        {profile.syncs:.1f} per update, {profile.sync_seconds * 1e3:.2f} ms",
        "memory kept  bytes that the forward pass of a node leaves allocated",
    ]
    return "\n".join([lines[0], rule, *lines[1:], "", *footer])


def write(profile: Profile, folder: Path, title: str) -> list[Path]:
    """Write a profile into a folder as JSON, collapsed stacks and a flame graph.

    Returns:
        The written files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        "profile.json": json.dumps(profile.as_json(), indent=2) + "\n",
        "stacks.txt": collapsed(profile.stacks),
        "flame.svg": flame_svg(profile.stacks, title),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in texts]
