"""The library: every block type that a spec may name, in one list, in reading order.

A new block is one new line here.  Installed packages add theirs through the
`weft.blocks` entry-point group; a spec can never name code.
"""

from __future__ import annotations

import functools
from importlib.metadata import entry_points

from ..graphs.signature import BlockType, Registry
from .additive_attention import ADDITIVE_ATTENTION
from .attention import ATTENTION, GROUPED_QUERY_ATTENTION
from .audio import DOWNSAMPLE_CONVOLUTION, LOG_MEL
from .block_sparse_attention import BLOCK_SPARSE_ATTENTION
from .combine import ADD, CONCATENATE, KEEP_TO_BIAS, LENGTHS_TO_KEEP, UNFOLD
from .conv_gru import CONV_GRU, CONV_GRU_DECODER
from .convolution import CONVOLUTION, GATED_CONVOLUTION, SEPARABLE_CONVOLUTION
from .counted_position import COUNTED_POSITION
from .dot_attention import DOT_ATTENTION
from .embedding import EMBEDDING
from .feed_forward import FEED_FORWARD, GATED_FEED_FORWARD
from .image import PATCH_EMBEDDING
from .linear_attention import LINEAR_ATTENTION
from .mixture_of_experts import MIXTURE_OF_EXPERTS
from .norm import LAYER_NORM, RMS_NORM
from .pointer import POINTER_HEAD
from .pointwise import ACTIVATION, GATE, SCALE
from .position import LEARNED_POSITION, SINUSOIDAL_POSITION, STEP_POSITION
from .recurrent import GRU, LSTM, RNN
from .sequence import POOL, PREPEND
from .span import SPAN_SCORE
from .state_space import MAMBA2
from .wiring import DROPOUT, LINEAR, PARALLEL_SUBLAYER, SUBLAYER
from .word import WORD_CONVOLUTION

STANDARD: tuple[BlockType, ...] = (
    EMBEDDING,
    SINUSOIDAL_POSITION,
    LEARNED_POSITION,
    STEP_POSITION,
    COUNTED_POSITION,
    ATTENTION,
    GROUPED_QUERY_ATTENTION,
    ADDITIVE_ATTENTION,
    LINEAR_ATTENTION,
    BLOCK_SPARSE_ATTENTION,
    DOT_ATTENTION,
    FEED_FORWARD,
    GATED_FEED_FORWARD,
    MIXTURE_OF_EXPERTS,
    CONVOLUTION,
    SEPARABLE_CONVOLUTION,
    GATED_CONVOLUTION,
    DOWNSAMPLE_CONVOLUTION,
    LOG_MEL,
    PATCH_EMBEDDING,
    RNN,
    GRU,
    LSTM,
    CONV_GRU,
    CONV_GRU_DECODER,
    MAMBA2,
    LAYER_NORM,
    RMS_NORM,
    SUBLAYER,
    PARALLEL_SUBLAYER,
    LINEAR,
    DROPOUT,
    ACTIVATION,
    SCALE,
    GATE,
    ADD,
    CONCATENATE,
    LENGTHS_TO_KEEP,
    KEEP_TO_BIAS,
    UNFOLD,
    PREPEND,
    POOL,
    WORD_CONVOLUTION,
    SPAN_SCORE,
    POINTER_HEAD,
)


def module_path(block: BlockType) -> str:
    """Return the full path, `package.file:Class`, of the module that computes a block."""
    if "." in block.module.partition(":")[0]:
        return block.module
    return f"{__package__}.modules.{block.module}"


@functools.cache
def registry() -> Registry:
    """Return the standard blocks and those of installed packages.

    An entry point of the group `weft.blocks` gives one `BlockType`, whose `module`
    is then a full path, `package.file:Class`.
    """
    added = [point.load() for point in entry_points(group="weft.blocks")]
    return Registry([*STANDARD, *added])
