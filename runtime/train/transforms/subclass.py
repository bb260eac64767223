"""Kinds: classes of modules that differ from another in how they run, and in nothing they hold."""

from __future__ import annotations

from typing import Any


def like(kind: Any, forward: Any, **more: Any) -> Any:
    """Return a class that differs from a module's in its `forward`, and has more methods.

    Modules take it as their `__class__`.  Make one for each class, so that the copies of a
    template are still alike.
    """
    members = {"__module__": kind.__module__, "__doc__": kind.__doc__, "forward": forward, **more}
    return type(kind.__name__, (kind,), members)
