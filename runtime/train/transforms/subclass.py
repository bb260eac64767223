"""Module subclasses that change only the behavior of a module, not its contents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...codegen.generated import reduce


def like(kind: Any, forward: Any, made_by: Callable[[Any], Any], **more: Any) -> Any:
    """Return a subclass of a module class with another `forward` and additional members.

    Assign it to the `__class__` of modules.  Make only one per class, so that the copies of a
    template still share a class.

    Args:
        kind: the class.
        forward: the new method; it gets the docstring of the old one.
        made_by: the cached function that called this one: pickles name it to make the class again.
        **more: further members.
    """
    forward.__doc__ = kind.forward.__doc__
    members = {"__module__": kind.__module__, "__doc__": kind.__doc__, "forward": forward, **more}
    members |= {"_made_by": (made_by, kind), "__reduce_ex__": reduce}
    return type(kind.__name__, (kind,), members)
