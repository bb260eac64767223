"""Tests of finding the output projection that the loss can fuse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from weft.graphs.passes.fuse import head_of

if TYPE_CHECKING:
    from collections.abc import Callable


def test_the_last_linear_map_is_the_head(
    edit: Callable[..., dict[str, Any]], graph_of: Callable[..., Any]
) -> None:
    """Regardless of its name."""
    assert head_of(graph_of(edit({})), "logits") == "head"


@pytest.mark.parametrize(
    "edits",
    [
        {"/nodes/after": {"use": "elementwise@1", "in": {"x": "head.y"}, "params": {"y": "2 * x"}},
         "/outputs/logits": "after.y"},
        {"/nodes/after": {"use": "elementwise@1", "in": {"x": "head.y"}, "params": {"y": "2 * x"}},
         "/outputs/more": "after.y"},
        {"/outputs/more": "head.y"},
    ],
    ids=["something behind it", "something reads it", "given twice"],
)  # fmt: skip
def test_logits_with_other_readers_are_computed(
    edit: Callable[..., dict[str, Any]], graph_of: Callable[..., Any], edits: dict[str, Any]
) -> None:
    """If other nodes read the logits, the loss does not take over the map."""
    assert head_of(graph_of(edit(edits)), "logits") is None


def test_an_unknown_output_has_no_head(
    edit: Callable[..., dict[str, Any]], graph_of: Callable[..., Any]
) -> None:
    """An unknown output is not an error."""
    assert head_of(graph_of(edit({})), "lengths") is None
