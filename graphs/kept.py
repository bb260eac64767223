"""Kept results: what is computed from one part of a graph is kept with it.

A part never changes, so a function of it is computed once.  The checker gives nodes that are alike
the same part, also in the next check of a spec that is being edited.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def kept(function: F) -> F:
    """Keep the last result of a function with its first argument.

    Args:
        function: its first argument has `results`; of any other, nothing is kept.  The others may
            be anything that can be compared.  What it returns is not to be changed.
    """
    name = f"{function.__module__}.{function.__qualname__}"

    @functools.wraps(function)
    def answer(part: Any, *more: Any) -> Any:
        results = getattr(part, "results", None)
        if results is None:
            return function(part, *more)
        found = results.get(name)
        if found is not None and found[0] == more:
            return found[1]
        result = function(part, *more)
        given = tuple(dict(each) if isinstance(each, Mapping) else each for each in more)
        results[name] = (given, result)
        return result

    return answer  # type: ignore[return-value]
