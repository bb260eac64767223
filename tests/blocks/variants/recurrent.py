"""Variants of recurrent blocks whose ports or behavior differ."""

from __future__ import annotations

from dataclasses import replace

from weft.blocks.recurrent.conv_gru import CONV_GRU, CONV_GRU_DECODER
from weft.blocks.recurrent.recurrent import GRU, LSTM, RNN
from weft.graphs.ir.block_type import BlockType

MASKED = {"x": "f[B T 8]", "mask": "mask[B T]"}

VARIANTS: dict[str, BlockType] = {}
for _block in (RNN, GRU, LSTM):
    VARIANTS |= {
        f"{_block.name}, masked": replace(_block, example_inputs=MASKED),
        f"{_block.name}, backward": replace(
            _block, example={"d_hidden": 6, "direction": "backward"}, example_inputs=MASKED
        ),
        f"{_block.name}, both": replace(
            _block, example={"d_hidden": 6, "direction": "both", "bias": False}
        ),
        f"{_block.name}, both and masked": replace(
            _block, example={"d_hidden": 6, "direction": "both"}, example_inputs=MASKED
        ),
    }
VARIANTS |= {
    "conv_gru, even": replace(CONV_GRU, example={"kernel": 4}),
    "conv_gru_decoder, even": replace(CONV_GRU_DECODER, example={"kernel": 4}),
    "conv_gru_decoder, of two": replace(CONV_GRU_DECODER, example={"kernel": 2}),
    "conv_gru, no mask": replace(CONV_GRU, example={"kernel": 1}, example_inputs={"x": "f[B T 8]"}),
    "conv_gru_decoder, no mask": replace(
        CONV_GRU_DECODER,
        example={"kernel": 5, "cells": 1},
        example_inputs={"x": "f[B T 6]", "memory": "f[B S 8]"},
    ),
}
