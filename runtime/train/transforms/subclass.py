"""Module subclasses that change only the behavior of a module, not its contents."""

from __future__ import annotations

from typing import Any


def like(kind: Any, forward: Any, **more: Any) -> Any:
    """Return a subclass of a module class with another `forward` and additional members.

    Assign it to the `__class__` of modules.  Make only one per class, so that the copies of a
    template still share a class.
    """
    members = {"__module__": kind.__module__, "__doc__": kind.__doc__, "forward": forward, **more}
    return type(kind.__name__, (kind,), members)
