"""Reference outputs of a model's plain forward pass, to check an export against.

No step program is involved, so faults in the step program are found too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .... import SpecialTokens
from ....plugin import Graph


@dataclass(frozen=True, slots=True)
class Plain:
    """A model of ids that is called with one sequence at a time, without decoding state."""

    model: nn.Module
    graph: Graph
    source: str | None
    """Name of the source input; None for a decoder-only model."""
    target: str
    """Name of the target input."""

    @torch.no_grad()
    def log_p(self, source: Sequence[int], target: Sequence[int]) -> Tensor:
        """Return the log probabilities [T, V] of the next token after each target token."""
        ids = {self.target: target} | ({self.source: source} if self.source else {})
        device = next(self.model.parameters()).device
        inputs = {name: torch.tensor([list(row)], device=device) for name, row in ids.items()}
        lengths = {self.graph.inputs[name].axes[-1]: row.size(1) for name, row in inputs.items()}
        for name, type_ in self.graph.inputs.items():
            if type_.kind == "mask":
                length = lengths[type_.axes[-1]]
                inputs[name] = torch.ones(1, length, dtype=torch.bool, device=device)
        logits: Tensor = self.model(**inputs)["logits"][0]
        return logits.float().log_softmax(-1).cpu()

    def greedy(
        self, source: Sequence[int], begin: Sequence[int], special_tokens: SpecialTokens, most: int
    ) -> list[int]:
        """Return at most `most` greedily decoded tokens, without the end token."""
        output: list[int] = []
        while len(output) < most:
            last_V = self.log_p(source, [*begin, *output])[-1]
            for never in {special_tokens.begin, special_tokens.pad, *special_tokens.never} - {
                special_tokens.end
            }:
                last_V[never] = -torch.inf
            token = int(last_V.argmax())
            if token == special_tokens.end:
                break
            output.append(token)
        return output

    def scores(self, source: Sequence[int], begin: int, target: Sequence[int]) -> list[float]:
        """Return the log probability of each target token, given `begin` before the first."""
        log_p = self.log_p(source, [begin, *target[:-1]])
        return [log_p[index, token].item() for index, token in enumerate(target)]
