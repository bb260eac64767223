"""Plain: what a model says when its forward is asked for everything, to check an export by.

No step program takes part, so a fault in that is found too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...graphs.ir.graph import Graph
from ..decode.decode import SpecialTokens


@dataclass(frozen=True, slots=True)
class Plain:
    """A model of ids, called with one sequence at a time."""

    model: nn.Module
    graph: Graph
    source: str | None
    """The input that is read; None for a decoder alone."""
    target: str
    """The input that is written."""

    @torch.no_grad()
    def log_p(self, source: Sequence[int], target: Sequence[int]) -> Tensor:
        """Return the log probabilities [T, V] of what follows each token of a target."""
        ids = {self.target: target} | ({self.source: source} if self.source else {})
        device = next(self.model.parameters()).device
        given = {name: torch.tensor([list(row)], device=device) for name, row in ids.items()}
        lengths = {self.graph.inputs[name].axes[-1]: row.size(1) for name, row in given.items()}
        for name, type_ in self.graph.inputs.items():
            if type_.kind == "mask":
                length = lengths[type_.axes[-1]]
                given[name] = torch.ones(1, length, dtype=torch.bool, device=device)
        logits: Tensor = self.model(**given)["logits"][0]
        return logits.float().log_softmax(-1).cpu()

    def greedy(
        self, source: Sequence[int], begin: Sequence[int], special_tokens: SpecialTokens, most: int
    ) -> list[int]:
        """Return the most probable tokens one after the other, the end token left out."""
        written: list[int] = []
        while len(written) < most:
            last_V = self.log_p(source, [*begin, *written])[-1]
            for never in {special_tokens.begin, special_tokens.pad, *special_tokens.never} - {
                special_tokens.end
            }:
                last_V[never] = -torch.inf
            token = int(last_V.argmax())
            if token == special_tokens.end:
                break
            written.append(token)
        return written

    def scores(self, source: Sequence[int], begin: int, target: Sequence[int]) -> list[float]:
        """Return the log probability of each token of a target, which follows a first one."""
        log_p = self.log_p(source, [begin, *target[:-1]])
        return [log_p[place, token].item() for place, token in enumerate(target)]
