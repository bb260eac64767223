"""Masks of pairs of positions: which keys each query of an attention may attend to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...graphs.ir.block_type import BlockType, NoParams, Port, Signature, Slot, never, port
from ..params import Count, Params, Several, no_arguments, only_params

QUERY = port("query", "pos[b t s]", "position of the query")
KEY = port("key", "pos[b t s]", "position of the key")
ROW = port("row", "pos[b t s]", "row of the batch")
ALLOWED = port("y", "mask[b t s]", "true where the query may attend to the key")
_EXAMPLE = {"query": "pos[B T S]", "key": "pos[B T S]"}


class WindowParams(Params):
    """Params of `window`."""

    distance: Count
    """Largest distance in positions that is attended to."""


class ChunkedParams(Params):
    """Params of `chunked`."""

    size: Count
    """Size of a chunk in positions."""


class BlockSparseParams(Params):
    """Params of `block_sparse`."""

    block: Count
    """Size of a block in positions."""
    window_blocks: Several = 1
    """Number of neighboring blocks that are attended to on either side."""
    global_tokens: Several = 0
    """Number of first positions that attend to all positions and that all positions attend to."""


def _signature(_: Params, __: frozenset[str]) -> Signature:
    return Signature(inputs=(QUERY, KEY), outputs=(ALLOWED,))


def _apart(sizes: Mapping[str, int]) -> int:
    """Return the largest distance between two positions, at least 1."""
    return max(1, sizes["s"] - 1)


WINDOW = BlockType(
    name="window",
    family="attention",
    mixes="",
    fills="mask",
    doc="Mask of a window: positions at most a distance apart; |query - key| <= distance.",
    source="Beltagy et al. 2020, section 3.1",
    params=WindowParams,
    signature=_signature,
    arguments=only_params,
    hops=lambda arguments, sizes: -(-_apart(sizes) // arguments["distance"]),
    carries=lambda _: "",
    module=".attention.masks_module:Window",
    example={"distance": 2},
    example_inputs=_EXAMPLE,
)

CHUNKED = BlockType(
    name="chunked",
    title="chunks",
    family="attention",
    mixes="",
    fills="mask",
    doc="Mask of chunks: positions of the same chunk; floor(query / size) = floor(key / size).",
    source="Child et al. 2019, section 4.2 (without strides); Llama 4, local attention",
    params=ChunkedParams,
    signature=_signature,
    arguments=only_params,
    hops=lambda arguments, sizes: int(sizes["s"] <= arguments["size"]),
    module=".attention.masks_module:Chunked",
    example={"size": 2},
    example_inputs=_EXAMPLE,
)


def _sparse_hops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Count the layers until both ends are connected over neighboring blocks; 0 for never.

    Global tokens do not count: with causal attention, nothing reaches later positions by them.
    """
    others = -(-sizes["s"] // arguments["block"]) - 1
    near: int = arguments["window_blocks"]
    if others < 1 or arguments["global_tokens"] >= sizes["s"]:
        return 1
    return -(-others // near) if near else 0


BLOCK_SPARSE = BlockType(
    name="block_sparse",
    title="block-sparse",
    family="attention",
    mixes="",
    fills="mask",
    doc="Mask of neighboring blocks and global positions; |floor(query / block) - "
    "floor(key / block)| <= window_blocks, or one of both is a global token.",
    source="Zaheer et al. 2020, section 2, without random blocks",
    params=BlockSparseParams,
    signature=_signature,
    arguments=only_params,
    hops=_sparse_hops,
    module=".attention.masks_module:BlockSparse",
    example={"block": 2, "global_tokens": 1},
    example_inputs=_EXAMPLE,
)


def _prefix_signature(_: NoParams, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(QUERY, KEY, ROW, port("prefix", "mask[b s]", "true at positions of the prefix")),
        outputs=(ALLOWED,),
        behavior={"s": "full"},
    )


PREFIX = BlockType(
    name="prefix",
    family="attention",
    mixes="",
    fills="mask",
    doc="Mask of a prefix language model: earlier positions and the prefix; "
    "key <= query or prefix[key].",
    source="Raffel et al. 2020, section 3.2.1",
    signature=_prefix_signature,
    arguments=no_arguments,
    module=".attention.masks_module:Prefix",
    example_inputs={**_EXAMPLE, "row": "pos[B T S]", "prefix": "mask[B S]"},
)


def _document_signature(_: NoParams, __: frozenset[str]) -> Signature:
    document = port("document", "ids:n[b s]", "number of the document at each position")
    return Signature(inputs=(QUERY, KEY, ROW, document), outputs=(ALLOWED,))


DOCUMENT = BlockType(
    name="document",
    title="documents",
    family="attention",
    mixes="",
    fills="mask",
    doc="Mask of documents packed in one row: positions of the same document; "
    "document[query] = document[key].",
    source="Krell et al. 2021, section 3.2.2",
    signature=_document_signature,
    arguments=no_arguments,
    hops=never,
    module=".attention.masks_module:Document",
    example_inputs={**_EXAMPLE, "row": "pos[B T S]", "document": "ids:3[B S]"},
)


def _slot(name: str, *, optional: bool = False) -> Slot:
    return Slot(
        name,
        Port("query", QUERY.type),
        Port("y", ALLOWED.type),
        "a mask; it receives the other wires that it has ports for",
        optional=optional,
        takes="mask",
        others=(KEY, ROW),
    )


def _combined_signature(_: NoParams, __: frozenset[str]) -> Signature:
    slots = (_slot("first"), _slot("second"))
    more = (_slot("third", optional=True), _slot("fourth", optional=True))
    return Signature(inputs=(QUERY, KEY, ROW), outputs=(ALLOWED,), slots=slots + more)


_TWO = {
    "first": {"use": "window@1", "params": {"distance": 2}},
    "second": {"use": "block_sparse@1", "params": {"block": 2}},
}

ALL = BlockType(
    name="all",
    title="all of",
    family="attention",
    mixes="",
    fills="mask",
    doc="Intersection of two to four masks; y = first and second.",
    source="Dong et al. 2024, section 3.3",
    signature=_combined_signature,
    arguments=no_arguments,
    module=".attention.masks_module:AllOf",
    example_inputs={**_EXAMPLE, "row": "pos[B T S]"},
    example_fill=_TWO,
)

ANY = BlockType(
    name="any",
    title="any of",
    family="attention",
    mixes="",
    fills="mask",
    doc="Union of two to four masks; y = first or second.",
    source="Dong et al. 2024, section 3.3",
    signature=_combined_signature,
    arguments=no_arguments,
    fewest_hops=True,
    module=".attention.masks_module:AnyOf",
    example_inputs={**_EXAMPLE, "row": "pos[B T S]"},
    example_fill=_TWO,
)
