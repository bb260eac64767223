"""Patches against an explicit linear map of each patch, and in a spec of fixed sizes."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F
from weft.blocks.frontend.image_module import PatchEmbedding
from weft.blocks.registry import registry
from weft.graphs.checker.check import analyse
from weft.specs.load import loaded


def test_each_patch_is_mapped_by_itself() -> None:
    """Row by row from the top left; within a patch, channels, then rows, then columns."""
    ours = PatchEmbedding(5, 2, 4, 6)
    ours.initialize(torch.Generator().manual_seed(1))
    assert ours.bias is not None
    torch.nn.init.normal_(ours.bias)
    image = torch.randn(2, 3, 4, 6)

    y = ours(image)

    wanted = [
        F.linear(image[:, :, r : r + 2, c : c + 2].flatten(1), ours.weight.flatten(1), ours.bias)
        for r in (0, 2)
        for c in (0, 2, 4)
    ]
    torch.testing.assert_close(y, torch.stack(wanted, 1))


def spec(width: int) -> dict[str, object]:
    """Return patches, a class token, positions and attention over an image of 4 x `width`."""
    return {
        "format": 1,
        "name": "pictures",
        "axes": {"B": "batch"},
        "inputs": {"image": f"f[B 3 4 {width}]"},
        "outputs": {"y": "attention.y"},
        "nodes": {
            "patches": {
                "use": "patch_embedding@1",
                "in": {"image": "image"},
                "params": {"d_model": 8, "patch": 2, "height": 4, "width": width},
            },
            "token": {"use": "prepend@1", "in": {"x": "patches.y"}},
            "position": {
                "use": "learned_position@1",
                "in": {"x": "token.y"},
                "params": {"max_length": 7},
            },
            "norm": {"use": "layer_norm@1", "in": {"x": "position.y"}},
            "attention": {"use": "attention@1", "in": {"x": "norm.y"}, "params": {"heads": 2}},
        },
    }


def test_a_sequence_may_have_a_number_for_a_length() -> None:
    """Six patches and a class token are seven vectors; no block has 7 as a width."""
    graph, findings = analyse(loaded(spec(6)).form, registry())

    assert findings == []
    assert graph is not None
    assert str(graph.outputs["y"]) == "f[B 7 8]"


def test_pictures_that_do_not_divide_are_refused() -> None:
    """The help names the nearest size that is divisible."""
    _, findings = analyse(loaded(spec(5)).form, registry())

    assert [f.problem for f in findings if f.code == "P02"] == [
        "patch_embedding@1: a width of 5 pixels does not divide into patches of 2"
    ]
    assert next(f.help for f in findings if f.code == "P02").startswith("use a width of 4")


@pytest.mark.parametrize("pixels", [1, 3])
def test_the_nearest_size_is_at_least_one_patch(pixels: int) -> None:
    """For an image smaller than a patch, the help names the patch size, or the next multiple."""
    _, findings = analyse(loaded(spec(pixels)).form, registry())

    wanted = {1: "use a width of 2", 3: "use a width of 4"}[pixels]
    assert next(f.help for f in findings if f.code == "P02").startswith(wanted)
