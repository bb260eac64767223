"""Continue prompts with a decoder-only model: beams, greedily or by sampling."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from ...graphs.ir.graph import Graph
from ...graphs.ir.traverse import position_limits
from ...specs.findings import InputError
from ..data.symbols import Vocabulary, lacking
from .decode import Request, SpecialTokens, decode_ids, masks_of, refuse_ids
from .inputs import batch_axis
from .search.constraints import Avoidance, texts_of_vocabulary
from .settings import BeamSearch, GenerateSettings, Hypothesis, Sampling

if TYPE_CHECKING:
    from ..data.hub import Prompts


@dataclass(frozen=True, slots=True)
class _Computed:
    """Inputs of a model that are computed before it writes, a row for each prompt."""

    graph: Graph
    written: str
    values: Mapping[str, Tensor]

    @property
    def written_masks(self) -> tuple[str, ...]:
        return masks_of(self.graph)

    def fixed(
        self, source_NS: Tensor, mask_NS: Tensor, others: Sequence[Mapping[str, Any]]
    ) -> dict[str, Tensor]:
        """Return the rows of some prompts."""
        del mask_NS
        rows_N = source_NS.new_tensor([row["prompt"] for row in others])
        return {
            name: value.index_select(batch_axis(self.graph, name), rows_N)
            for name, value in self.values.items()
        }


@dataclass
class ColumnPrompts:
    """A vocabulary, for prompts: they start with its beginning token, if it has one."""

    vocabulary: Vocabulary
    vocab_size: int

    def prompt(self, text: str) -> list[int]:
        """Return the ids of a prompt, starting with the beginning token if there is one."""
        begin = [self.vocabulary.bos] if self.vocabulary.bos >= 0 else []
        return [*begin, *self.vocabulary.encode(text)]

    def lacking(self, text: str, ids: Sequence[int]) -> str:
        """Return what to warn about a prompt with characters that the vocabulary lacks, or ""."""
        return lacking(self.vocabulary, text, ids, "the prompt")

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text inside a continuation."""
        return self.vocabulary.encode(text)

    @cached_property
    def texts(self) -> list[str | None]:
        """The text that each id adds; None for a part of a character."""
        return texts_of_vocabulary(self.vocabulary)

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids."""
        return self.vocabulary.decode(ids)

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return the piece of each id."""
        return self.vocabulary.pieces(ids)


def generate_with(  # noqa: PLR0913 - all by name but four
    model: nn.Module,
    graph: Graph,
    prompts: Sequence[Sequence[int]],
    settings: GenerateSettings,
    *,
    eos: Collection[int] = (),
    include: Sequence[Sequence[Sequence[int]]] = (),
    fixed: Mapping[str, Tensor] | None = None,
    tokenizer: Prompts | None = None,
    half: bool = False,
) -> list[list[Hypothesis]]:
    """Return the continuations of each prompt: `samples` of them, or the best of its beams.

    A continuation depends only on its own prompt and the seed.  It ends where the model has no more
    positions.  Prompts of different lengths are continued together where a row needs nothing but
    its own tokens, and otherwise those of one length.

    Args:
        model: in evaluation mode.
        graph: the graph that the model was built from; its step axis belongs to one input of ids
            and, optionally, to masks.
        prompts: ids, at least one each; all are decoded in one batch.
        settings: how continuations are generated, and how many for each prompt.
        eos: the tokens that end a row; if empty, rows end after `max_new` tokens.
        include: for each prompt, phrases of ids that its continuations contain; empty for none.
        fixed: the inputs without the step axis, one row per prompt.
        tokenizer: says which texts are different, and which tokens write what `avoid` bans.
        half: whether to run matrix products in bfloat16.

    Raises:
        InputError: the graph does not support this, or a prompt is empty, has an id outside the
            vocabulary, or has more tokens than the model has positions.
    """
    moving = check_generates(graph, fixed or ())
    refuse_ids("prompt", prompts, int(graph.inputs[moving].size or 0))
    positions = min(position_limits(graph), default=None)
    longest = max(map(len, prompts), default=0)
    if positions is not None and longest > positions:
        raise InputError(
            f"the prompt has {longest} tokens, but the model has {positions} positions",
            location="prompt",
            help="shorten it",
        )
    search, ends = settings.search(), tuple(sorted(eos))
    avoidance = None
    if search.avoid:
        if tokenizer is None:
            raise InputError(
                "'avoid' bans texts, but there is no tokenizer", help="leave it out for token ids"
            )
        avoidance = Avoidance(search.avoid, tokenizer.texts, ends)
    phrases = include or [()] * len(prompts)
    requests = [
        Request(
            (),
            prompt=prompt,
            include=required,
            others={"prompt": row},
            location=f"prompt {row + 1}",
        )
        for row, (prompt, required) in enumerate(zip(prompts, phrases, strict=True))
    ]
    hypotheses: dict[int, list[Hypothesis]] = {}
    for rows in _batches(requests, search):
        hypotheses |= zip(
            rows,
            decode_ids(
                [model],
                [requests[row] for row in rows],
                SpecialTokens(0, 0, 0, ends=ends),
                search,
                avoidance=avoidance,
                inputs=_Computed(graph, moving, fixed or {}),
                text_of=None if tokenizer is None else tokenizer.decode,
                half=half,
            ),
            strict=True,
        )
    return [hypotheses[row] for row in range(len(prompts))]


def _batches(requests: Sequence[Request], search: BeamSearch | Sampling) -> Iterator[list[int]]:
    """Yield the rows that are decoded together."""
    alone = isinstance(search, Sampling) or search.beam == 1
    restricted = search.avoid or search.min_length or search.no_repeat
    restricted = restricted or search.repetition_penalty > 1
    if alone and not restricted and not any(request.include for request in requests):
        if requests:
            yield [*range(len(requests))]
        return
    by_length: dict[int, list[int]] = {}
    for row, request in enumerate(requests):
        by_length.setdefault(len(request.prompt), []).append(row)
    yield from by_length.values()


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
