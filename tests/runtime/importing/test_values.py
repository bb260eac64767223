"""Values of a table that are neither numbers nor strings of the configuration."""

from __future__ import annotations

import pytest
from weft.runtime.importing.config import Configuration
from weft.specs.expressions import ExpressionError, UnknownNameError

CONFIG = Configuration(
    {"labels": {"0": "cat", "1": "dog", "2": "owl"}, "sizes": [4, 5], "size": 4},
    {"names": {"0": "yes", "1": "no"}},
    "config.json",
)


@pytest.mark.parametrize(("key", "wanted"), [("labels", 3), ("sizes", 2), ("names", 2)])
def test_entries_are_counted(key: str, wanted: int) -> None:
    """Entries of an object, a list, and a default."""
    assert CONFIG.value_of({"count": key}) == wanted


def test_a_number_has_no_length() -> None:
    """A number has no entries; a missing key is reported as such."""
    with pytest.raises(ExpressionError, match="'size' is 4, which has no entries"):
        CONFIG.value_of({"count": "size"})
    with pytest.raises(UnknownNameError, match="other"):
        CONFIG.value_of({"count": "other"})
