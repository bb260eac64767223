"""`weft.example_inputs`: valid random inputs of a spec or a model."""

from __future__ import annotations

import pytest
import torch
import weft

SMALL = {"vocab": 11, "d_model": 8, "heads": 2, "d_ff": 12, "layers": 1}


def test_kinds_shapes_and_ranges_are_those_of_the_spec() -> None:
    """Ids below the vocabulary, a bool mask with padding, a different length for each axis."""
    found = weft.example_inputs(weft.load("transformer-tiny", **SMALL), {"B": 3, "S": 4})

    assert {name: tuple(value.shape) for name, value in found.items()} == {
        "source": (3, 4),
        "source_mask": (3, 4),
        "target": (3, 7),
    }
    assert found["source"].dtype == torch.int64
    assert 0 <= int(found["source"].min()) <= int(found["source"].max()) < 11
    assert found["source_mask"].tolist()[:2] == [[True] * 4, [True] * 3 + [False]]


def test_values_depend_on_the_seed_alone() -> None:
    """The same for a spec, its graph and its model, whatever torch's random state is."""
    spec = weft.load("transformer-tiny", **SMALL)
    first = weft.example_inputs(spec)
    torch.manual_seed(99)

    for other in (weft.example_inputs(spec.graph()), weft.example_inputs(weft.build(spec))):
        assert all(torch.equal(first[name], other[name]) for name in first)
    assert not torch.equal(weft.example_inputs(spec, seed=2)["source"], first["source"])


def test_without_padding_masks_are_true() -> None:
    """For measurements, which count every position."""
    found = weft.example_inputs("transformer-tiny", padding=False)

    assert bool(found["source_mask"].all())


def test_inputs_are_on_the_device_of_the_model() -> None:
    """A model on meta has no device for values, so its inputs are on the CPU."""
    model = weft.build(weft.load("transformer-tiny", **SMALL), device="meta")

    assert weft.example_inputs(model)["source"].device.type == "cpu"
    assert weft.example_inputs(model, device="meta")["source"].device.type == "meta"


@pytest.mark.parametrize(
    ("sizes", "problem"),
    [({"X": 3}, "no axis 'X'"), ({"B": 0}, "size of axis 'B' is 0"), ({"B": 1.5}, "is 1.5")],
)
def test_wrong_sizes_are_refused(sizes: dict[str, int], problem: str) -> None:
    """The message names the axis."""
    with pytest.raises(weft.InputError, match=problem):
        weft.example_inputs("transformer-tiny", sizes)
