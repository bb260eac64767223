"""Continuations of prompts of ids, by a model without a checkpoint."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from torch import nn
from weft.runtime.data.prompts import WrittenIds
from weft.runtime.decode.decode import Request
from weft.runtime.decode.predictors.continuing import Continuing
from weft.runtime.decode.predictors.predictor import Context
from weft.runtime.decode.settings import GenerateSettings, Hypothesis
from weft.runtime.model.answering import TEXT, PromptText


def continued(
    model: nn.Module,
    prompts: Sequence[Sequence[int]],
    settings: GenerateSettings,
    eos: Collection[int] = (),
    include: Sequence[Sequence[Sequence[int]]] = (),
) -> list[list[Hypothesis]]:
    """Return the continuations of each prompt; `eos` ends them, and they have what is included."""
    context = Context((model,), {TEXT: PromptText(WrittenIds(), tuple(eos))}, TEXT)
    requests = [
        Request((), prompt=prompt, include=required)
        for prompt, required in zip(prompts, include or [()] * len(prompts), strict=True)
    ]
    return Continuing.of(context, settings).decode_requests(requests)
