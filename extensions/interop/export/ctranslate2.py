"""Export to a folder for CTranslate2's Translator or Generator, checked after writing."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .... import SpecialTokens
from ....plugin import Checkpoint, Graph, InputError, new_folder, position_limits, write_marker
from ....specs.escaping import markdown, markdown_code
from .ctranslate2_layers import Stacks
from .ctranslate2_spec import ct2_plan, ct2_spec
from .vocabulary import VocabularyTokens, words_of

_TEXT = """# {name}, for CTranslate2

Written by `weft export`. {doc}

```python
import ctranslate2
{imports}
{opened}
{use}
```

{notes}
"""


@dataclass(frozen=True, slots=True)
class _Kind:
    """How a program uses a tokenizer."""

    imports: str
    opens: str
    encodes: str
    decodes: str


_KINDS = {
    "model": _Kind(
        "import sentencepiece\n",
        'sentencepiece.SentencePieceProcessor(model_file="{file}")',
        'reads.encode("A dog runs.", out_type=str)',
        "{side}.decode({tokens})",
    ),
    "tokenizer": _Kind(
        "import tokenizers\n",
        'tokenizers.Tokenizer.from_file("{file}")',
        'reads.encode("A dog runs.").tokens',
        "{side}.decode([{side}.token_to_id(one) for one in {tokens}])",
    ),
    "symbols": _Kind("", "", '"A dog runs .".split()', '" ".join({tokens})'),
}
"""By the kind of its file: a SentencePiece model, a `tokenizer.json`, or a list of symbols."""


def _kind(name: str) -> str:
    """Return the kind of a tokenizer's file: `x.model`, `x.tokenizer.json`, `x.symbols.json`."""
    return name.removesuffix(".json").rpartition(".")[2]


def ct2_readme(graph: Graph, words: VocabularyTokens, *, decoder_only: bool) -> str:
    """Return the text of the README of a CTranslate2 folder.

    Args:
        graph: the exported graph.
        words: its vocabularies.
        decoder_only: whether the model is decoder-only.
    """
    special_tokens = words.special_tokens
    begin, end = words.target[special_tokens.begin], words.target[special_tokens.end]
    banned = (
        begin,
        words.target[special_tokens.pad],
        *(words.target[token] for token in special_tokens.never),
    )
    kind = "Generator" if decoder_only else "Translator"
    opened = [f'engine = ctranslate2.{kind}(".", device="cpu")']
    imports, notes = "", []
    tokens, text = '["12", "7", "30"]', "{tokens}"
    if words.reads is not None and words.writes is not None:
        names = [words.file_of(tokenizer) for tokenizer in (words.reads, words.writes)]
        read, written = (_KINDS[_kind(name)] for name in names)
        sides = {"reads": (names[0], read)}
        if names[1] != names[0] and not decoder_only:
            sides["writes"] = (names[1], written)
        imports = "".join(dict.fromkeys(kind.imports for _, kind in sides.values()))
        opened += [
            f"{side} = {kind.opens.format(file=name)}"
            for side, (name, kind) in sides.items()
            if kind.opens
        ]
        tokens = read.encodes
        text = written.decodes.replace("{side}", list(sides)[-1])
    else:
        notes.append("There is no tokenizer: a token is written as its id.")
        if not decoder_only:
            notes.append(
                f"If the source needs an end token, add it yourself: {markdown_code(end)}."
            )
    if decoder_only:
        use = [
            f"result = engine.generate_batch([{tokens}], max_length=50, sampling_topk=1)[0]",
            "print(result.sequences[0])",
        ]
        notes.append("Choose the first token of the prompt yourself.")
    else:
        use = [
            f"result = engine.translate_batch([{tokens}], beam_size=5, length_penalty=1.0)[0]",
            f"print({text.replace('{tokens}', 'result.hypotheses[0]')})",
        ]
        ends = (
            f" {markdown_code(end)} is appended to each source automatically."
            if words.ends_source
            else ""
        )
        notes.append(
            f"An output begins with {markdown_code(begin)} and ends with {markdown_code(end)}."
            f"{ends}"
        )
        notes.append(
            "`length_penalty=A` divides log P by length^A, like `weft translate --penalty length "
            "--alpha A`; CTranslate2 does not have the GNMT penalty, weft's default."
        )
    never = ", ".join(json.dumps([word]) for word in dict.fromkeys(banned) if word != end)
    if never:
        notes.append(
            f"`weft` never outputs these tokens; to ban them here, use "
            f"{markdown_code(f'suppress_sequences=[{never}]')}."
        )
    return _TEXT.format(
        name=markdown(graph.name),
        doc=markdown(graph.doc),
        imports=imports,
        opened="\n".join(opened),
        use="\n".join(use),
        notes="\n".join(notes),
    )


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


CLOSE = 1e-3
"""Largest allowed difference of a log probability in float32."""
NEAR = 0.2
"""Largest allowed mean difference of log probabilities if weights are quantized."""
SENTENCES = 6
LONGEST = 16
"""Most tokens of a random sentence in the check, and of its translation."""


@dataclass(frozen=True, slots=True)
class Checked:
    """Result of comparing an export with the model."""

    outputs: int
    """Number of sentences decoded greedily by both."""
    same: int
    """Number of sentences with identical outputs."""
    tokens: int
    """Number of tokens whose log probabilities were compared."""
    largest: float
    """Largest absolute difference of two log probabilities."""
    mean: float
    """Mean absolute difference."""
    default_mean: float
    """Mean absolute difference if the engine computes as it does by default on this processor."""

    @property
    def report(self) -> str:
        """The result as text."""
        result = (
            f"{self.same} of {self.outputs} outputs equal, decoded greedily by both\n"
            f"log probabilities of {self.tokens} tokens differ by {self.mean:.2g} on average, "
            f"{self.largest:.2g} at most"
        )
        if self.default_mean <= NEAR:
            return result
        return (
            f"{result}\nwarning: this processor's integer products lose precision: with them, log "
            f"probabilities differ by {self.default_mean:.2g} on average; pass "
            "compute_type='float32' to CTranslate2 here"
        )


def export_ctranslate2(
    checkpoint: Checkpoint,
    out: Path | str,
    *,
    quantization: str = "float32",
    lines: Iterable[str] = (),
) -> Checked:
    """Write a checkpoint as a CTranslate2 folder, and check its outputs.

    Args:
        checkpoint: an opened checkpoint.
        out: the folder; an older export there is replaced.
        quantization: number format of the weights, one of `quantization.QUANTIZATIONS`.
        lines: sentences to check with; random tokens by default.

    Raises:
        InputError: CTranslate2 is missing or has no counterpart for a node, the path exists and
            is not an export, or the export does not match the model; then it is removed.
    """
    try:
        import ctranslate2  # noqa: F401, PLC0415 - an extra
    except ImportError as error:
        raise InputError(
            f"CTranslate2 cannot be loaded: {error}", help="pip install 'weft[ctranslate2]'"
        ) from error
    build = cache(checkpoint.build)
    plan = ct2_plan(checkpoint.graph, build)
    model, stacks = build(), plan.stacks
    spec = ct2_spec(plan, model)
    source = stacks.encoder.ids if stacks.encoder is not None else None
    words = words_of(checkpoint, source, stacks.decoder.ids)
    _name(spec, stacks, words)
    spec.validate()
    spec.optimize(quantization)
    reference = Plain(model, checkpoint.graph, source, stacks.decoder.ids)
    with new_folder(Path(out)) as folder:
        spec.save(str(folder))
        for name, data in words.tokenizers.items():
            (folder / name).write_bytes(data)
        (folder / "README.md").write_text(
            ct2_readme(checkpoint.graph, words, decoder_only=source is None)
        )
        checked = check_ctranslate2(folder, reference, words, quantization, lines)
        write_marker(
            folder,
            checkpoint.graph,
            "ctranslate2",
            {"quantization": quantization, "checked": asdict(checked)},
        )
    return checked


def _name(spec: Any, stacks: Stacks, words: VocabularyTokens) -> None:
    """Set a spec's vocabularies and special tokens."""
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
    folder: Path,
    reference: Plain,
    words: VocabularyTokens,
    quantization: str,
    lines: Iterable[str] = (),
) -> Checked:
    """Compare greedy outputs and log probabilities; the model runs one sentence at a time.

    Args:
        folder: the written export.
        reference: the model.
        words: its vocabularies.
        quantization: number format of the weights; sets the tolerance.
        lines: sentences to decode.

    Raises:
        InputError: the differences are too large.
    """
    decoder_only = reference.source is None
    sources = _sources(reference, words, lines)
    most = _longest(reference)
    begins = [source if decoder_only else [words.special_tokens.begin] for source in sources]
    ours = [
        reference.greedy(source, begin, words.special_tokens, most)
        for source, begin in zip(sources, begins, strict=True)
    ]
    # Score the model's own outputs; for decoder-only models, prompt and output.
    targets = [
        [*source, *output] if decoder_only else output
        for source, output in zip(sources, ours, strict=True)
    ]
    expected: list[float] = []
    for source, target in zip(sources, targets, strict=True):
        begin, scored = (
            (target[0], target[1:]) if decoder_only else (words.special_tokens.begin, target)
        )
        expected += reference.scores(
            source, begin, scored if decoder_only else [*scored, words.special_tokens.end]
        )

    def differences(engine: _Engine) -> list[float]:
        scores = chain.from_iterable(engine.scores(sources, targets))
        return [abs(a - b) for a, b in zip(expected, scores, strict=True)]

    exact = quantization == "float32"
    # Quantized weights are read in float32: a processor without VNNI saturates integer products.
    engine = _Engine(folder, words, "float32", decoder_only=decoder_only)
    theirs, gaps = engine.greedy(sources, most), differences(engine)
    mean = sum(gaps) / len(gaps)
    default_mean = mean
    if not exact:
        default = differences(_Engine(folder, words, "default", decoder_only=decoder_only))
        default_mean = sum(default) / len(default)
    checked = Checked(
        outputs=len(ours),
        same=sum(a == b for a, b in zip(ours, theirs, strict=True)),
        tokens=len(gaps),
        largest=max(gaps),
        mean=mean,
        default_mean=default_mean,
    )
    far = checked.largest > CLOSE if exact else checked.mean > NEAR
    # Allow one different output: a near tie between two tokens may break either way.
    unlike = exact and checked.same < checked.outputs - 1
    if far or unlike or checked.mean != checked.mean:
        raise InputError(
            f"the export does not compute the same as the model: {checked.same} of "
            f"{checked.outputs} "
            f"outputs are equal, log probabilities differ by up to {checked.largest:.2g}",
            location=str(folder.name).strip(".").removesuffix(".partial"),
            help="nothing was kept; please report this spec: this is a bug in the export",
        )
    return checked


def _sources(reference: Plain, words: VocabularyTokens, lines: Iterable[str]) -> list[list[int]]:
    """Return the ids of the lines, or random ids from a fixed seed."""
    nonblank = [line for line in lines if line.strip()]
    ends = [words.special_tokens.end] if words.ends_source and reference.source else []
    if nonblank and words.reads is not None:
        return [[*ids, *ends] for ids in words.reads.encode_many(nonblank)]
    chance = random.Random(1)
    special_tokens = {*words.special_tokens, words.unknown}
    usual = [index for index in range(len(words.source)) if index not in special_tokens]
    longest = _longest(reference) - 1
    lengths = [1 + index * (longest - 1) // (SENTENCES - 1) for index in range(SENTENCES)]
    return [[*chance.choices(usual, k=length), *ends] for length in lengths]


def _longest(reference: Plain) -> int:
    """Return the maximal sentence length, limited by the shortest learned position table."""
    tables = position_limits(reference.graph)
    capacity = min([*tables, 4 * LONGEST]) // (1 if reference.source else 2)
    return max(2, min(LONGEST, capacity - 1))


class _Engine:
    """The written folder, opened by CTranslate2."""

    def __init__(
        self, folder: Path, words: VocabularyTokens, compute: str, *, decoder_only: bool
    ) -> None:
        import ctranslate2  # noqa: PLC0415 - an extra

        kind = ctranslate2.Generator if decoder_only else ctranslate2.Translator
        threads = torch.get_num_threads()
        self.engine: Any = kind(
            str(folder), device="cpu", compute_type=compute, intra_threads=threads
        )
        self.words, self.decoder_only = words, decoder_only

    def _read(self, sources: Sequence[Sequence[int]]) -> list[list[str]]:
        """Return sources as tokens, without the end token that the engine appends."""
        sources_ = [
            s[:-1] if self.words.ends_source and not self.decoder_only else s for s in sources
        ]
        return [[self.words.source[index] for index in ids] for ids in sources_]

    def _written(self, targets: Sequence[Sequence[int]]) -> list[list[str]]:
        return [[self.words.target[index] for index in ids] for ids in targets]

    def greedy(self, sources: Sequence[Sequence[int]], most: int) -> list[list[int]]:
        """Return greedy outputs for each source or prompt."""
        special_tokens = self.words.special_tokens
        banned = {special_tokens.begin, special_tokens.pad, *special_tokens.never} - {
            special_tokens.end
        }
        never = [[self.words.target[index]] for index in sorted(banned)]
        settings: dict[str, Any] = {
            "beam_size": 1,
            "sampling_topk": 1,
            "suppress_sequences": never or None,
        }
        if self.decoder_only:
            # One prompt per call: CTranslate2 counts a batch's length from its shortest prompt.
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
        """Return the log probability of each token; decoder-only models start at the second."""
        if self.decoder_only:
            results = self.engine.score_batch(self._written(targets))
        else:
            results = self.engine.score_batch(self._read(sources), self._written(targets))
        return [list(result.log_probs) for result in results]
