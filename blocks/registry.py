"""The library: every block type that a spec may name, in one list, in reading order.

A new block is one new line here.  Installed packages add theirs through the
`weft.blocks` entry-point group; a spec can never name code.
"""

from __future__ import annotations

import functools
from importlib.metadata import entry_points

from ..graphs.ir.block_type import BlockType, Registry, Role
from .attention.additive import ADDITIVE_ATTENTION
from .attention.block_sparse import BLOCK_SPARSE_ATTENTION
from .attention.dot_product import DOT_ATTENTION
from .attention.linear import LINEAR_ATTENTION
from .attention.multi_head import ATTENTION, GROUPED_QUERY_ATTENTION
from .attention.pointer_generator import POINTER_HEAD
from .convolution.char_cnn import WORD_CONVOLUTION
from .convolution.convolution import CONVOLUTION, GATED_CONVOLUTION, SEPARABLE_CONVOLUTION
from .feed_forward.elementwise import ACTIVATION, GATE, SCALE
from .feed_forward.feed_forward import FEED_FORWARD, GATED_FEED_FORWARD
from .feed_forward.mixture_of_experts import MIXTURE_OF_EXPERTS
from .frontend.audio import DOWNSAMPLE_CONVOLUTION, LOG_MEL
from .frontend.image import PATCH_EMBEDDING
from .pooling.pool import POOL, PREPEND
from .pooling.span import SPAN_SCORE
from .position.copy_position import COUNTED_POSITION
from .position.embedding import EMBEDDING
from .position.position import LEARNED_POSITION, SINUSOIDAL_POSITION, STEP_POSITION
from .recurrent.conv_gru import CONV_GRU, CONV_GRU_DECODER
from .recurrent.recurrent import GRU, LSTM, RNN
from .recurrent.state_space import MAMBA2
from .residual.combine import ADD, CONCATENATE, LENGTHS_TO_MASK, MASK_TO_BIAS, UNFOLD
from .residual.norm import LAYER_NORM, RMS_NORM
from .residual.sublayer import DROPOUT, LINEAR, PARALLEL_SUBLAYER, SUBLAYER

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
    LENGTHS_TO_MASK,
    MASK_TO_BIAS,
    UNFOLD,
    PREPEND,
    POOL,
    WORD_CONVOLUTION,
    SPAN_SCORE,
    POINTER_HEAD,
)


def module_path(block: BlockType) -> str:
    """Return the full path, `package.file:Class`, of the module that computes a block."""
    return full_path(block.module)


def full_path(path: str) -> str:
    """Return the full path of `file:name`; one that begins with a dot is relative to `blocks`."""
    return f"{__package__}{path}" if path.startswith(".") else path


def key_for(role: Role) -> str:
    """Return the key of the standard block that plays a role, such as `linear@1`."""
    return next(block.key for block in STANDARD if block.role == role)


@functools.cache
def registry() -> Registry:
    """Return the standard blocks and those of installed packages.

    An entry point of the group `weft.blocks` gives one `BlockType`, whose `module`
    is then a full path, `package.file:Class`.
    """
    added = [point.load() for point in entry_points(group="weft.blocks")]
    return Registry([*STANDARD, *added])
