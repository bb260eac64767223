"""Block registry: every block type that a spec may use, in the order of the documentation.

To register a block, add a line here.  A block type is imported when a spec uses it, so opening a
model imports only the files of its own blocks.  Installed packages add blocks through the
`weft.blocks` entry-point group, and callers through `blocks=`; a spec can never name code.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from collections.abc import Iterable
from typing import Any

from ..graphs.ir.block_type import BlockType, Registry, Role
from ..specs.findings import InputError
from .entry_points import loaded, origin_of, package_of, points_of

STANDARD = {
    "embedding@1": ".position.position:EMBEDDING",
    "sinusoidal_position@1": ".position.position:SINUSOIDAL_POSITION",
    "learned_position@1": ".position.position:LEARNED_POSITION",
    "step_position@1": ".position.position:STEP_POSITION",
    "counted_position@1": ".position.copy_position:COUNTED_POSITION",
    "attention@1": ".attention.multi_head:ATTENTION",
    "rotary@1": ".position.rotary:ROTARY",
    "alibi@1": ".position.relative:ALIBI",
    "relative_bias@1": ".position.relative:RELATIVE_BIAS",
    "relative_keys@1": ".position.relative:RELATIVE_KEYS",
    "transformer_xl_position@1": ".position.relative:TRANSFORMER_XL_POSITION",
    "disentangled_position@1": ".position.relative:DISENTANGLED_POSITION",
    "window@1": ".attention.masks:WINDOW",
    "chunked@1": ".attention.masks:CHUNKED",
    "block_sparse@1": ".attention.masks:BLOCK_SPARSE",
    "prefix@1": ".attention.masks:PREFIX",
    "document@1": ".attention.masks:DOCUMENT",
    "all@1": ".attention.masks:ALL",
    "any@1": ".attention.masks:ANY",
    "head_gates@1": ".attention.scores:HEAD_GATES",
    "talking_heads@1": ".attention.scores:TALKING_HEADS",
    "additive_attention@1": ".attention.additive:ADDITIVE_ATTENTION",
    "linear_attention@1": ".attention.linear:LINEAR_ATTENTION",
    "block_sparse_attention@1": ".attention.block_sparse:BLOCK_SPARSE_ATTENTION",
    "dot_attention@1": ".attention.dot_product:DOT_ATTENTION",
    "feed_forward@1": ".feed_forward.feed_forward:FEED_FORWARD",
    "gated_feed_forward@1": ".feed_forward.feed_forward:GATED_FEED_FORWARD",
    "mixture_of_experts@1": ".feed_forward.mixture_of_experts:MIXTURE_OF_EXPERTS",
    "token_router@1": ".feed_forward.token_router:TOKEN_ROUTER",
    "convolution@1": ".convolution.convolution:CONVOLUTION",
    "depthwise_convolution@1": ".convolution.convolution:DEPTHWISE_CONVOLUTION",
    "separable_convolution@1": ".convolution.convolution:SEPARABLE_CONVOLUTION",
    "gated_convolution@1": ".convolution.convolution:GATED_CONVOLUTION",
    "log_mel@1": ".frontend.audio:LOG_MEL",
    "patch_embedding@1": ".frontend.image:PATCH_EMBEDDING",
    "rnn@1": ".recurrent.recurrent:RNN",
    "gru@1": ".recurrent.recurrent:GRU",
    "lstm@1": ".recurrent.recurrent:LSTM",
    "conv_gru@1": ".recurrent.conv_gru:CONV_GRU",
    "conv_gru_decoder@1": ".recurrent.conv_gru:CONV_GRU_DECODER",
    "mamba2@1": ".recurrent.state_space:MAMBA2",
    "retention@1": ".recurrent.retention:RETENTION",
    "gated_linear_attention@1": ".recurrent.gated_linear_attention:GATED_LINEAR_ATTENTION",
    "delta_rule@1": ".recurrent.delta_rule:DELTA_RULE",
    "linear_recurrence@1": ".recurrent.linear_recurrence:LINEAR_RECURRENCE",
    "scan@1": ".recurrent.scan:SCAN",
    "layer_norm@1": ".residual.sublayer:LAYER_NORM",
    "rms_norm@1": ".residual.sublayer:RMS_NORM",
    "batch_norm@1": ".residual.batch_norm:BATCH_NORM",
    "group_norm@1": ".residual.group_norm:GROUP_NORM",
    "sublayer@1": ".residual.sublayer:SUBLAYER",
    "parallel_sublayer@1": ".residual.sublayer:PARALLEL_SUBLAYER",
    "linear@1": ".residual.sublayer:LINEAR",
    "dropout@1": ".residual.sublayer:DROPOUT",
    "elementwise@1": ".algebra.elementwise:ELEMENTWISE",
    "einsum@1": ".algebra.einsum:EINSUM",
    "reduce@1": ".algebra.reduce:REDUCE",
    "softmax@1": ".algebra.softmax:SOFTMAX",
    "parameter@1": ".algebra.parameter:PARAMETER",
    "gather@1": ".algebra.gather:GATHER",
    "argmax@1": ".algebra.gather:ARGMAX",
    "lengths_to_mask@1": ".residual.combine:LENGTHS_TO_MASK",
    "unfold@1": ".residual.combine:UNFOLD",
    "slice@1": ".axes.slice:SLICE",
    "split@1": ".axes.slice:SPLIT",
    "shift@1": ".axes.shift:SHIFT",
    "concatenate@1": ".axes.concatenate:CONCATENATE",
    "upsample@1": ".axes.upsample:UPSAMPLE",
    "prepend@1": ".pooling.pool:PREPEND",
    "pool@1": ".pooling.pool:POOL",
    "word_convolution@1": ".convolution.char_cnn:WORD_CONVOLUTION",
    "span_score@1": ".pooling.span:SPAN_SCORE",
    "pointer_head@1": ".attention.pointer_generator:POINTER_HEAD",
    "not_padding@1": ".noise.structure:NOT_PADDING",
    "prefix_mask@1": ".noise.structure:PREFIX_MASK",
    "empty_text@1": ".noise.structure:EMPTY_TEXT",
    "length_class@1": ".noise.structure:LENGTH_CLASS",
    "mask_tokens@1": ".noise.corrupt:MASK_TOKENS",
    "drop_tokens@1": ".noise.corrupt:DROP_TOKENS",
    "replace_tokens@1": ".noise.corrupt:REPLACE_TOKENS",
    "sample_tokens@1": ".noise.corrupt:SAMPLE_TOKENS",
    "span_corruption@1": ".noise.span_corruption:SPAN_CORRUPTION",
    "cross_entropy@1": ".losses.cross_entropy:CROSS_ENTROPY",
    "binary_cross_entropy@1": ".losses.elementwise:BINARY_CROSS_ENTROPY",
    "mean_squared_error@1": ".losses.elementwise:MEAN_SQUARED_ERROR",
    "kl_divergence@1": ".losses.pairs:KL_DIVERGENCE",
    "contrastive@1": ".losses.pairs:CONTRASTIVE",
    "ctc@1": ".losses.ctc:CTC",
    "chart_cross_entropy@1": ".losses.tree_crf:CHART_CROSS_ENTROPY",
}
"""Key of a shipped block to `file:name` of its `BlockType`, relative to this folder."""


def load_block(path: str) -> BlockType:
    """Return the block type at `file:name`.

    Raises:
        TypeError: the object is not a `BlockType`.
    """
    file, _, name = full_path(path).partition(":")
    block = getattr(importlib.import_module(file), name)
    if not isinstance(block, BlockType):
        msg = f"'{path}' is not a BlockType"
        raise TypeError(msg)
    return block


@functools.cache
def standard() -> tuple[BlockType, ...]:
    """Return every shipped block type."""
    return tuple(map(load_block, STANDARD.values()))


def shipped(block: BlockType) -> bool:
    """Return whether a block ships with Weft; any other is a plug-in."""
    return block.key in STANDARD


def module_path(block: BlockType) -> str:
    """Return the full path, `package.file:Class`, of the module that computes a block."""
    if isinstance(block.module, str):
        return full_path(block.module)
    return f"{block.module.__module__}:{block.module.__qualname__}"


def full_path(path: str) -> str:
    """Return the full path of `file:name`; a leading dot means relative to `blocks`."""
    return f"{__package__}{path}" if path.startswith(".") else path


def key_for(role: Role) -> str:
    """Return the key of the standard block that plays a role, such as `linear@1`."""
    return next(block.key for block in standard() if block.role == role)


@functools.cache
def installed() -> Registry:
    """Return the shipped blocks and those of installed packages.

    An entry point of the group `weft.blocks` loads one `BlockType`, whose `module` must be a
    full path, `package.file:Class`.

    Raises:
        InputError: the block of an entry point cannot be loaded, is declared wrongly, or has the
            key of another block.
    """
    blocks = {key: functools.partial(load_block, path) for key, path in STANDARD.items()}
    origins: dict[str, str] = dict.fromkeys(blocks, "weft")
    added = list[BlockType]()
    for point in points_of("weft.blocks"):
        origin = origin_of(point)
        block: BlockType = loaded(point)
        _refuse_unusable(block, origin)
        if block.key in origins:
            raise InputError(
                f"a block with the key '{block.key}' already exists, from {origins[block.key]}",
                location=origin,
                help="give the block another name or major; "
                f"or run 'pip uninstall {package_of(point)}'",
            )
        origins[block.key] = origin
        added.append(block)
    return Registry(added, blocks)


def registry(blocks: Iterable[BlockType] = ()) -> Registry:
    """Return the installed blocks, with those that a caller passed as `blocks=`.

    Raises:
        InputError: one of `blocks` is not a block type, is declared wrongly, has the key of
            another block, or names a module that does not exist.
    """
    base, added = installed(), list[BlockType]()
    for block in blocks:
        if any(block is other for other in added):
            continue
        _refuse_unusable(block, "blocks")
        if base.get(block.key) is not None or any(block.key == other.key for other in added):
            raise InputError(
                f"a block with the key '{block.key}' already exists",
                location="blocks",
                help="give your block another name, or a higher 'major'",
            )
        added.append(block)
    return base.extended(added) if added else base


_VALID: dict[int, BlockType] = {}
"""Valid plug-in blocks by id, so that each is validated once; holding them keeps ids unique."""


def _refuse_unusable(block: object, origin: str) -> None:
    """Raise an error if an object is not a valid block type, or if its module does not exist.

    The module is not imported, because checking a spec must not load torch.
    """
    if not isinstance(block, BlockType):
        what = f"the class {block.__name__}" if isinstance(block, type) else f"{block!r:.60}"
        raise InputError(
            f"{what} is not a BlockType",
            location=origin,
            help="pass the weft.BlockType that declares the block; its 'module' is the class",
        )
    if _VALID.get(id(block)) is block:
        return
    from ..graphs.contract import refuse_wrong_contract  # noqa: PLC0415 - for plug-ins only

    refuse_wrong_contract(block, origin)
    if block.written is not None:
        _VALID[id(block)] = block
        return
    path, _, name = module_path(block).partition(":")
    if not name.isidentifier() or not _exists(path, name, block.module):
        raise InputError(
            f"the module '{path}:{name}' of block '{block.key}' cannot be imported",
            location=origin,
            help="write 'package.file:Class', or pass a class that is defined at the top level",
        )
    _VALID[id(block)] = block


def _exists(path: str, name: str, expected: str | type[Any]) -> bool:
    """Return whether a Python module exists and, if it is loaded, whether it has the class."""
    if path in sys.modules:
        attribute = getattr(sys.modules[path], name, None)
        return attribute is not None if isinstance(expected, str) else attribute is expected
    try:
        return importlib.util.find_spec(path) is not None
    except (ImportError, ValueError):
        return False
