"""Image front end: patch embedding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...graphs.ir.block_type import BlockType, Signature, port
from ..params import Count, Flag, Params


class PatchEmbeddingParams(Params):
    """Params of `patch_embedding`."""

    d_model: Count
    """Width of the output vectors."""
    patch: Count
    """Height and width of a patch, in pixels."""
    height: Count
    """Height of an image, in pixels."""
    width: Count
    """Width of an image, in pixels."""
    channels: Count = 3
    """Number of channels."""
    bias: Flag = True
    """Whether to add a bias."""


def _patches(params: PatchEmbeddingParams) -> int:
    """Return the number of patches of an image; at least 1, so that the port type is valid."""
    return max(1, (params.height // params.patch) * (params.width // params.patch))


def _signature(params: PatchEmbeddingParams, _: frozenset[str]) -> Signature:
    images = f"f[b {params.channels} {params.height} {params.width}]"
    return Signature(
        inputs=(port("image", images, "images"),),
        outputs=(
            port(
                "y",
                f"f[b {_patches(params)} {params.d_model}]",
                "one vector per patch, row by row from the top left",
            ),
        ),
    )


def _arguments(params: PatchEmbeddingParams, _: Mapping[str, Any]) -> dict[str, Any]:
    for name, pixels in (("height", params.height), ("width", params.width)):
        if pixels % params.patch:
            msg = f"a {name} of {pixels} pixels does not divide into patches of {params.patch}"
            near = max(1, round(pixels / params.patch)) * params.patch
            raise ValueError(msg, f"use a {name} of {near} or another 'patch'")
    return params.model_dump()


def _weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    a = arguments
    weight = {"weight": (a["d_model"], a["channels"], a["patch"], a["patch"])}
    return weight | ({"bias": (a["d_model"],)} if a["bias"] else {})


def _flops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Count the linear map of every pixel to the model width."""
    a = arguments
    pixels = a["height"] * a["width"] * a["channels"]
    return 2 * sizes["b"] * int(pixels * a["d_model"])


PATCH_EMBEDDING = BlockType(
    name="patch_embedding",
    family="embedding",
    mixes="pictures",
    doc="Cut images into square patches and map each patch to a vector; y_i = W x_i + b.",
    source="Dosovitskiy et al. 2021, section 3.1",
    params=PatchEmbeddingParams,
    signature=_signature,
    arguments=_arguments,
    weights=_weights,
    flops=_flops,
    module=".frontend.image_module:PatchEmbedding",
    example={"d_model": 8, "patch": 2, "height": 4, "width": 6},
    example_inputs={"image": "f[B 3 4 6]"},
)
