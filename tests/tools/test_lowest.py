"""Lower bounds of the dependencies: each is stated once, and the pinned versions satisfy them."""

from __future__ import annotations

import pytest
from lowest import CONTRIBUTORS, bound, lowest, pins, requirements


def as_numbers(version: str) -> tuple[int, ...]:
    """Return a version as numbers that compare."""
    return tuple(map(int, version.split(".")))


def test_a_package_has_one_lower_bound() -> None:
    """Two extras with different bounds would leave it open which of them is tested.

    An extra may need a newer PyTorch than Weft itself.
    """
    bounds: dict[str, set[str]] = {}
    for extra, listed in requirements().items():
        if extra not in set(CONTRIBUTORS) - {"dev"}:
            for name, version in map(bound, listed):
                bounds.setdefault(name, set()).add(version)

    assert {name for name, found in bounds.items() if len(found) > 1} <= {"torch"}


def test_pinned_versions_satisfy_the_lower_bounds() -> None:
    """`constraints.txt` and `pyproject.toml` are edited separately."""
    listed = {bound(each) for group in requirements().values() for each in group}
    pinned = pins()

    assert {
        name: (version, pinned[name])
        for name, version in listed
        if name in pinned and as_numbers(version) > as_numbers(pinned[name])
    } == {}


def test_every_dependency_of_an_installation_is_pinned() -> None:
    """Otherwise a new release of it could break a clone."""
    assert [name for name, _ in map(bound, requirements()[""]) if name not in pins()] == []


def test_the_lowest_set_has_lower_bounds_of_users_and_pinned_tools() -> None:
    """An old pytest would test pytest, not Weft."""
    found = lowest()

    assert found["networkx"] == "3.2"
    assert found["torch"] == "2.11"
    assert found["fastapi"] == "0.121"
    assert found["pytest"] == pins()["pytest"]
    assert "weft" not in found


def test_a_requirement_of_another_form_is_refused() -> None:
    """A bound that the script cannot read must not be left out silently."""
    with pytest.raises(ValueError, match=r"'torch!=2\.12' as NAME>=VERSION"):
        bound("torch!=2.12")
