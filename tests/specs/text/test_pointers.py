"""Parts of JSON values at JSON Pointers, RFC 6901."""

from __future__ import annotations

from typing import Any

import pytest
from weft.specs.json_tree import is_in, value_at

VALUE: dict[str, Any] = {"nodes": [1, {"a/b": 2, "m~n": 8}], "": 0}
"""The last three keys are those of section 5 of the RFC."""


@pytest.mark.parametrize(
    ("pointer", "part"),
    [("", VALUE), ("/nodes/0", 1), ("/nodes/1/a~1b", 2), ("/nodes/1/m~0n", 8), ("/", 0)],
)
def test_a_pointer_leads_to_a_part(pointer: str, part: Any) -> None:
    """Section 4: `~1` is a slash, `~0` a tilde, and a number an index."""
    assert value_at(VALUE, pointer) == part
    assert is_in(VALUE, pointer)


@pytest.mark.parametrize("pointer", ["/edges", "/nodes/2", "/nodes/first", "/nodes/0/x"])
def test_a_pointer_to_nothing_is_an_error(pointer: str) -> None:
    """A missing key, an index beyond the end, a word as an index, and below a number."""
    assert not is_in(VALUE, pointer)
    with pytest.raises(KeyError):
        value_at(VALUE, pointer)
