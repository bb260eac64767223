"""Generate continuations of given tokens, greedily or by sampling.

All rows begin at their first token.  The tokens up to the end of the shortest prompt are read
at once.  After that, a row is fed from its prompt while the prompt lasts, and then with
the tokens it generates; so prompts of different lengths share a batch without left padding.
Rows that have ended are removed from the state (`active_rows.py`).

Axes: R rows, P tokens of the longest prompt, V vocabulary, L most tokens to generate.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from ...graphs.ir.graph import Graph
from ...graphs.ir.traverse import position_limits
from ...specs.findings import InputError
from .active_rows import ActiveRows, Stepper
from .decode import masks_of, refuse_ids
from .graphed import stepper_of
from .inputs import batch_axis
from .search.sampling import Sampler
from .settings import GenerateSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """The text generated after one prompt."""

    tokens: tuple[int, ...]
    """Ids, without the prompt and without the end token."""
    log_probability: float
    """Natural logarithm of the model's probability of the tokens, including the end token."""
    finished: bool
    """Whether an end token ended it, rather than the length limit."""


class Reader(Stepper, Protocol):
    """A stepper that can read many tokens at once."""

    def read(self, tokens_RP: Tensor, /) -> None:
        """Append the first tokens of every row, without computing logits."""


@torch.no_grad()
def generate(
    stepper: Reader,
    prompts: Sequence[Sequence[int]],
    settings: GenerateSettings,
    *,
    eos: Collection[int],
    device: torch.device,
    positions: int | None = None,
) -> list[Continuation]:
    """Continue each prompt.

    Args:
        stepper: a stepper with `samples` rows per prompt, and capacity for the longest prompt and
            its continuation.
        prompts: ids, at least one each.
        settings: how continuations are generated.
        eos: the tokens that end a row; if empty, rows end after `max_new` tokens.
        device: the device of the stepper.
        positions: number of positions of the model, after which continuations are cut; None if
            unlimited.

    Returns:
        `samples` continuations of the first prompt, then those of the second, and so on. A
        continuation depends only on its own prompt and the seed, not on the other rows.

    Raises:
        ValueError: the stepper has a different number of rows, or a prompt is empty.
    """
    if len(prompts) * settings.samples != stepper.rows or not all(prompts):
        msg = (
            f"expected {settings.samples} rows for each of {len(prompts)} non-empty prompts, "
            f"got {stepper.rows} rows"
        )
        raise ValueError(msg)
    choose = _Choice(settings, prompts)
    prompts = [prompt for prompt in prompts for _ in range(settings.samples)]
    lengths_R = torch.tensor([len(prompt) for prompt in prompts], device=device)
    longest = max(map(len, prompts))
    prompt_RP = torch.tensor([[*p, *[p[-1]] * (longest - len(p))] for p in prompts], device=device)
    ends_E = torch.tensor(sorted(eos), device=device, dtype=torch.long)
    first = min(map(len, prompts)) - 1
    if first:
        stepper.read(prompt_RP[:, :first])
    active = ActiveRows(stepper, len(prompts))
    token_R, count_R = prompt_RP[:, first], torch.zeros_like(lengths_R)
    written_RL = prompt_RP.new_zeros(len(prompts), settings.max_new)
    log_p_R = torch.zeros(len(prompts), device=device)
    open_R = torch.ones_like(lengths_R, dtype=torch.bool)
    ended_R = ~open_R
    for position in range(first, _end(longest, settings, positions)):
        logits_RV = active.spread(active.step(token_R, position))
        reading_R = lengths_R > position + 1
        if position + 1 < longest:
            token_R = prompt_RP[:, position + 1]
        writing_R = open_R & ~reading_R
        chosen_R, gain_R = choose(logits_RV, writing_R)
        token_R = torch.where(reading_R, token_R, chosen_R)
        place_R1 = count_R.clamp(max=settings.max_new - 1)[:, None]
        kept_R1 = written_RL.gather(1, place_R1)
        written_RL.scatter_(1, place_R1, torch.where(writing_R[:, None], token_R[:, None], kept_R1))
        log_p_R = torch.where(writing_R, log_p_R + gain_R, log_p_R)
        count_R = count_R + writing_R
        ended_R = ended_R | (writing_R & torch.isin(token_R, ends_E))
        open_R = ~ended_R & (count_R < settings.max_new)
        remaining = int(open_R.sum())
        if not remaining:
            break
        active.narrow(open_R, remaining)
    return [
        Continuation(tokens=tuple(row[: count - ended]), log_probability=log_p, finished=ended)
        for row, count, ended, log_p in zip(
            written_RL.tolist(), count_R.tolist(), ended_R.tolist(), log_p_R.tolist(), strict=True
        )
    ]


def _end(longest: int, settings: GenerateSettings, positions: int | None) -> int:
    """Return the number of positions that are read: the last token that is written is not."""
    end = longest + settings.max_new - 1
    return end if positions is None else min(end, positions)


class _Choice:
    """Chooses one token per row from its logits."""

    def __init__(self, settings: GenerateSettings, prompts: Sequence[Sequence[int]]) -> None:
        draws = settings.draws
        self.sampler = None if draws is None else Sampler(draws, prompts, settings.samples)

    def __call__(self, logits_RV: Tensor, writing_R: Tensor) -> tuple[Tensor, Tensor]:
        """Return the tokens [R] and their log probabilities [R], in float32."""
        log_p_RV = torch.log_softmax(logits_RV, dim=-1, dtype=torch.float32)
        if self.sampler is None:
            gain_R, token_R = log_p_RV.max(-1)
            return token_R, gain_R
        token_R = self.sampler.choose(log_p_RV, writing_R.tolist())
        return token_R, log_p_RV.gather(1, token_R[:, None])[:, 0]


def generate_with(
    model: nn.Module,
    graph: Graph,
    prompts: Sequence[Sequence[int]],
    settings: GenerateSettings,
    *,
    eos: Collection[int] = (),
    fixed: Mapping[str, Tensor] | None = None,
    half: bool = False,
) -> list[Continuation]:
    """Continue each prompt with a decoder-only model.

    A continuation ends where the model has no more positions.

    Args:
        model: in evaluation mode.
        graph: the graph that the model was built from; its step axis belongs to one input of ids
            and, optionally, to masks.
        prompts: ids, at least one each; all are decoded in one batch.
        settings: how continuations are generated, and how many for each prompt.
        eos: the tokens that end a row.
        fixed: the inputs without the step axis, one row per prompt.
        half: whether to run matrix products in bfloat16.

    Raises:
        InputError: the graph does not support this, or a prompt is empty, has an id outside the
            vocabulary, or has more tokens than the model has positions.
    """
    moving = check_generates(graph, fixed or ())
    refuse_ids("prompt", prompts, int(graph.inputs[moving].size or 0))
    if not prompts:
        return []
    device = next(model.parameters()).device
    positions = min(position_limits(graph), default=None)
    longest = max(map(len, prompts))
    if positions is not None and longest > positions:
        raise InputError(
            f"the prompt has {longest} tokens, but the model has {positions} positions",
            location="prompt",
            help="shorten it",
        )
    with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=half):
        stepper = stepper_of(
            model,
            {
                name: value.repeat_interleave(settings.samples, batch_axis(graph, name))
                for name, value in (fixed or {}).items()
            },
            beams=1,
            length=_end(longest, settings, positions),
            moving=moving,
            masks=masks_of(graph),
            sentences=len(prompts) * settings.samples,
        )
        return generate(stepper, prompts, settings, eos=eos, device=device, positions=positions)


def check_generates(graph: Graph, fixed: Collection[str] = ()) -> str:
    """Return the input of ids that a decoder-only model writes.

    Args:
        graph: graph of the model.
        fixed: inputs without the step axis for which there are values.

    Raises:
        InputError: it has other inputs, no step axis or no logits.
    """
    moving = {n: t.kind for n, t in graph.inputs.items() if graph.step_axis in t.axes}
    ids = [name for name, kind in moving.items() if kind == "ids"]
    if graph.step_axis is None or len(ids) != 1 or "logits" not in graph.outputs:
        raise InputError(
            "generation needs a spec with a step axis, whose only input is ids, and 'logits'",
            location=graph.source,
            help='declare one input of ids, such as "tokens": "ids:vocab[B T]", and set \'step\'',
        )
    others = [n for n, kind in moving.items() if kind not in {"ids", "mask"}]
    others += [n for n in graph.inputs if n not in moving and n not in fixed]
    if others:
        raise InputError(
            f"generation needs a spec whose only input is ids, but '{graph.name}' also reads"
            f" {', '.join(map(repr, others))}",
            location=graph.source,
            help="use 'weft predict' with rows that have the columns of these inputs",
        )
    return ids[0]
