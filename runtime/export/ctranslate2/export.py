"""To CTranslate2: a folder that its Translator or Generator opens, checked after writing."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from ....blocks.position.position_module import LearnedPosition
from ....specs.findings import InputError
from ...checkpoint.checkpoint import Checkpoint
from ...data.tokenizer import Tokenizer
from ..atomic_folder import new_folder, write_marker
from ..readme import ct2_readme
from ..reference import Plain
from ..vocabulary import Words, words_of
from .layer_stacks import Stacks
from .spec import ct2_plan, ct2_spec

QUANTIZATIONS = (
    "float32",
    "float16",
    "bfloat16",
    "int16",
    "int8",
    "int8_float32",
    "int8_float16",
    "int8_bfloat16",
)
CLOSE = 1e-3
"""Most by which a log probability may differ in float32."""
NEAR = 0.2
"""Most by which log probabilities may differ in the mean where weights are rounded."""
SENTENCES = 6
LONGEST = 16
"""Tokens of a sentence that is made up for the check, and of its translation."""


@dataclass(frozen=True, slots=True)
class Checked:
    """How far an export is from the model, by what was compared after writing."""

    outputs: int
    """Sentences that both decoded greedily."""
    same: int
    """Those of which both made the same tokens."""
    tokens: int
    """Tokens whose log probabilities were compared."""
    largest: float
    """Largest difference of two log probabilities."""
    mean: float
    """Mean difference."""

    @property
    def report(self) -> str:
        """What was compared, for a person."""
        return (
            f"{self.same} of {self.outputs} outputs equal, decoded greedily by both\n"
            f"log probabilities of {self.tokens} tokens differ by {self.mean:.2g} in the mean, "
            f"{self.largest:.2g} at most"
        )


def export_ctranslate2(
    held: Checkpoint,
    out: Path | str,
    *,
    quantization: str = "float32",
    lines: Iterable[str] = (),
) -> Checked:
    """Write a checkpoint as a folder of CTranslate2, and check that it computes the same.

    Args:
        held: an opened checkpoint.
        out: the folder; an older export there is replaced.
        quantization: one of `QUANTIZATIONS`, in which weights are written.
        lines: sentences to check with; made up from the vocabulary when there are none.

    Raises:
        InputError: CTranslate2 is missing or has no counterpart for a node; the folder is
            something else; or what was written does not compute the same, then it is gone.
    """
    try:
        import ctranslate2  # noqa: F401, PLC0415 - an extra
    except ImportError as error:
        raise InputError(
            f"CTranslate2 cannot be loaded: {error}", help="pip install 'weft[ctranslate2]'"
        ) from error
    build = cache(held.build)
    plan = ct2_plan(held.graph, build)
    model, stacks = build(), plan.stacks
    spec = ct2_spec(plan, model)
    source = stacks.encoder.ids if stacks.encoder is not None else None
    words = words_of(held, source, stacks.decoder.ids)
    _name(spec, stacks, words)
    spec.validate()
    spec.optimize(quantization)
    plain = Plain(model, held.graph, source, stacks.decoder.ids)
    with new_folder(Path(out)) as folder:
        spec.save(str(folder))
        for name, data in words.tokenizers.items():
            (folder / name).write_bytes(data)
        (folder / "README.md").write_text(ct2_readme(held.graph, words, alone=source is None))
        checked = check_ctranslate2(folder, plain, words, quantization, lines)
        write_marker(
            folder,
            held.graph,
            "ctranslate2",
            {"quantization": quantization, "checked": asdict(checked)},
        )
    return checked


def _name(spec: Any, stacks: Stacks, words: Words) -> None:
    """Give a spec its vocabularies, and say what begins and ends a sentence."""
    config, special_tokens = spec.config, words.special_tokens
    config.unk_token = words.target[words.unknown]
    config.bos_token = words.target[special_tokens.begin]
    config.eos_token = words.target[special_tokens.end]
    if stacks.encoder is None:
        spec.register_vocabulary(list(words.target))
        return
    config.decoder_start_token = words.target[special_tokens.begin]
    config.add_source_eos = words.ends_source
    spec.register_source_vocabulary(list(words.source))
    spec.register_target_vocabulary(list(words.target))


def check_ctranslate2(
    folder: Path, plain: Plain, words: Words, quantization: str, lines: Iterable[str] = ()
) -> Checked:
    """Compare greedy outputs and log probabilities, ours sentence by sentence, theirs as a batch.

    Args:
        folder: what was written.
        plain: the model.
        words: its vocabularies.
        quantization: of the weights; decides how close they must be.
        lines: sentences to decode.

    Raises:
        InputError: they are too far apart.
    """
    alone = plain.source is None
    sources = _sources(plain, words, lines)
    most = _longest(plain)
    begins = [source if alone else [words.special_tokens.begin] for source in sources]
    ours = [
        plain.greedy(source, begin, words.special_tokens, most)
        for source, begin in zip(sources, begins, strict=True)
    ]
    # What is scored: what the model itself wrote, behind its prompt when that is all it reads.
    targets = [[*source, *own] if alone else own for source, own in zip(sources, ours, strict=True)]
    compute = "float32" if quantization == "float32" else "default"
    engine = _Engine(folder, words, compute, alone=alone)
    theirs = engine.greedy(sources, most)
    differences: list[float] = []
    scores = engine.scores(sources, targets)
    for source, target, found in zip(sources, targets, scores, strict=True):
        begin, rest = (target[0], target[1:]) if alone else (words.special_tokens.begin, target)
        wanted = plain.scores(source, begin, rest if alone else [*rest, words.special_tokens.end])
        differences += [abs(a - b) for a, b in zip(wanted, found, strict=True)]
    checked = Checked(
        outputs=len(ours),
        same=sum(a == b for a, b in zip(ours, theirs, strict=True)),
        tokens=len(differences),
        largest=max(differences),
        mean=sum(differences) / len(differences),
    )
    exact = quantization == "float32"
    far = checked.largest > CLOSE if exact else checked.mean > NEAR
    # Two tokens as probable as each other to the last digits may change places.
    unlike = exact and checked.same < checked.outputs - 1
    if far or unlike or checked.mean != checked.mean:
        raise InputError(
            f"what was written does not compute the same: {checked.same} of {checked.outputs} "
            f"outputs are equal, log probabilities differ by up to {checked.largest:.2g}",
            place=str(folder.name).strip(".").removesuffix(".partial"),
            help="nothing was kept; tell us the spec: this is a fault of the export",
        )
    return checked


def _sources(plain: Plain, words: Words, lines: Iterable[str]) -> list[list[int]]:
    """Return what both read: lines as ids, or ids at random, the same each time."""
    given = [line for line in lines if line.strip()]
    ends = [words.special_tokens.end] if words.ends_source and plain.source else []
    if given and words.tokenizers:
        name = "source.model" if "source.model" in words.tokenizers else "tokenizer.model"
        tokenizer = Tokenizer.from_bytes(words.tokenizers[name])
        return [[*ids, *ends] for ids in tokenizer.encode_many(given)]
    chance = random.Random(1)
    special_tokens = {*words.special_tokens, words.unknown}
    usual = [index for index in range(len(words.source)) if index not in special_tokens]
    longest = _longest(plain) - 1
    lengths = [1 + index * (longest - 1) // (SENTENCES - 1) for index in range(SENTENCES)]
    return [[*chance.choices(usual, k=length), *ends] for length in lengths]


def _longest(plain: Plain) -> int:
    """Return how long sentences may be, by the shortest table of learned positions."""
    tables = [m.weight.size(0) for m in plain.model.modules() if isinstance(m, LearnedPosition)]
    room = min([*tables, 4 * LONGEST]) // (1 if plain.source else 2)
    return max(2, min(LONGEST, room - 1))


class _Engine:
    """What was written, as CTranslate2 opens it."""

    def __init__(self, folder: Path, words: Words, compute: str, *, alone: bool) -> None:
        import ctranslate2  # noqa: PLC0415 - an extra

        kind = ctranslate2.Generator if alone else ctranslate2.Translator
        threads = torch.get_num_threads()
        self.engine: Any = kind(
            str(folder), device="cpu", compute_type=compute, intra_threads=threads
        )
        self.words, self.alone = words, alone

    def _read(self, sources: Sequence[Sequence[int]]) -> list[list[str]]:
        """Return sources as tokens, without the end that the engine puts behind each."""
        kept = [s[:-1] if self.words.ends_source and not self.alone else s for s in sources]
        return [[self.words.source[index] for index in ids] for ids in kept]

    def _written(self, targets: Sequence[Sequence[int]]) -> list[list[str]]:
        return [[self.words.target[index] for index in ids] for ids in targets]

    def greedy(self, sources: Sequence[Sequence[int]], most: int) -> list[list[int]]:
        """Return the most probable tokens after each source, or each prompt."""
        special_tokens = self.words.special_tokens
        barred = {special_tokens.begin, special_tokens.pad, *special_tokens.never} - {
            special_tokens.end
        }
        never = [[self.words.target[one]] for one in sorted(barred)]
        settings: dict[str, Any] = {
            "beam_size": 1,
            "sampling_topk": 1,
            "suppress_sequences": never or None,
        }
        if self.alone:
            # One at a time: it counts the length of a batch from its shortest prompt.
            settings |= {"max_length": most, "min_length": 0, "include_prompt_in_result": False}
            results = [
                self.engine.generate_batch([prompt], **settings)[0]
                for prompt in self._read(sources)
            ]
            return [list(result.sequences_ids[0]) for result in results]
        results = self.engine.translate_batch(
            self._read(sources), max_decoding_length=most, min_decoding_length=0, **settings
        )
        number = {word: index for index, word in enumerate(self.words.target)}
        return [[number[word] for word in result.hypotheses[0]] for result in results]

    def scores(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
    ) -> list[list[float]]:
        """Return the log probability of each token; of a decoder alone from the second on."""
        if self.alone:
            results = self.engine.score_batch(self._written(targets))
        else:
            results = self.engine.score_batch(self._read(sources), self._written(targets))
        return [list(result.log_probs) for result in results]
