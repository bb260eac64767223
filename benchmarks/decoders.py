"""Decoders of Transformer base by Weft and its peers, for the same job.

`DECODERS[name](work, folder)` makes a decoder, which is called with a batch of sources and a beam
and returns the outputs.  Sizes are those of the paper and weights are random.  The end token is
suppressed, so that every output has exactly the maximal number of tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from contestants import build_marian, build_weft
from peers import BASE, Size, eole_parts

PAD, END, BEGIN = 0, 1, 3
"""Special ids; words begin at 4."""
FREQUENT, EACH = 1000, 50
"""Sizes of shortlists, the defaults of `weft shortlist`."""

Sources = Sequence[Sequence[int]]
Decode = Callable[[Sources, int], Sequence[Sequence[Any]]]
"""Maps sources and a beam to one output per source."""


@dataclass(frozen=True)
class Work:
    """The job of every contestant."""

    vocab: int
    length: int
    """Tokens of every output."""
    threads: int
    device: str = "cpu"
    """Device of Weft, Hugging Face, Eole and CTranslate2; fairseq runs on the CPU."""

    @property
    def size(self) -> Size:
        """Sizes of the model."""
        return replace(BASE, vocab=self.vocab)


def shortlist(vocab: int) -> Any:
    """Return a shortlist of the default sizes, with random candidates."""
    from weft.runtime.decode.shortlist.table import FORMAT, About, Shortlist

    generator = torch.Generator().manual_seed(1)
    candidates = torch.randint(4, vocab, (vocab * EACH,), generator=generator, dtype=torch.int32)
    return Shortlist(
        About(format=FORMAT, source="", target="", made={}),
        torch.arange(0, vocab * EACH + 1, EACH),
        candidates,
        torch.arange(4, 4 + FREQUENT, dtype=torch.int32),
    )


def weft(
    work: Work,
    *,
    half: bool,
    quantize: bool = False,
    shortlisted: bool = False,
    graphs: bool = False,
) -> Decode:
    """Make a decoder that works like `weft translate`, optionally with `--compile graphs`.

    Raises:
        RuntimeError: there are no CUDA graphs on this device, or no fast products in bfloat16.
    """
    from weft.blocks.kernels.processor import FAST_BFLOAT16, has, lack_of
    from weft.runtime.compile.decode_compile import Steps
    from weft.runtime.compile.decoder import Passes, use_passes, use_steps
    from weft.runtime.decode.decode import Request, SpecialTokens, decode_ids
    from weft.runtime.decode.settings import BeamSearch
    from weft.runtime.system.memory import WHILE_DECODING, keep_freed_memory

    if graphs and work.device != "cuda":
        raise RuntimeError(f"no CUDA graphs on {work.device}")
    if half and work.device == "cpu" and not has(*FAST_BFLOAT16):
        raise RuntimeError(lack_of(*FAST_BFLOAT16)[0])
    keep_freed_memory(WHILE_DECODING)
    model = build_weft(work.size).eval().to(work.device)
    listed = shortlist(work.vocab) if shortlisted else None
    use_passes(model, Passes("int8" if quantize else "none", shortlist=listed))
    use_steps(model, Steps("graphs" if graphs else "off"))
    seen: set[tuple[int, int]] = set()

    def decode(sources: Sources, beam: int) -> Sequence[Sequence[int]]:
        # Steps are recorded when they run for the second time, which is not to be measured.
        if graphs and (len(sources), beam) not in seen:
            seen.add((len(sources), beam))
            decode(sources, beam)
        search = BeamSearch(beam=beam, min_length=work.length, max_length=work.length)
        requests = [Request(source) for source in sources]
        found = decode_ids([model], requests, SpecialTokens(BEGIN, END, PAD), search, half=half)
        return [best.tokens for best, *_ in found]

    return decode


def marian(work: Work, *, half: bool) -> Decode:
    """Make a decoder of Hugging Face Marian, with its cache."""
    model: Any = build_marian(work.size).eval().to(work.device)
    if half:
        model = model.to(torch.bfloat16)

    @torch.inference_mode()
    def decode(sources: Sources, beam: int) -> Sequence[Sequence[int]]:
        widest = max(map(len, sources))
        ids = torch.tensor([[*row, *[PAD] * (widest - len(row))] for row in sources])
        ids = ids.to(work.device)
        found = model.generate(
            input_ids=ids,
            attention_mask=(ids != PAD).long(),
            num_beams=beam,
            do_sample=False,
            min_new_tokens=work.length,
            max_new_tokens=work.length,
            use_cache=True,
        )
        return [row[1:] for row in found.tolist()]

    return decode


def converted(
    folder: Path,
    config: Any,
    build: Callable[[], Any],
    words: Sequence[str],
    special: Mapping[str, str],
    kind: str,
) -> str:
    """Convert a model of Hugging Face for CTranslate2, and return its folder.

    Args:
        folder: where to write.
        config: configuration of the model.
        build: makes the model.
        words: the vocabulary, by id.
        special: special tokens, by the name of the tokenizer's attribute.
        kind: in what the weights are stored.
    """
    from ctranslate2.converters import TransformersConverter

    vocab = {word: i for i, word in enumerate(words)}

    class Converter(TransformersConverter):
        """A converter that needs no files besides the configuration."""

        def load_model(self, *_: Any, **__: Any) -> Any:
            return build().eval()

        def load_tokenizer(self, *_: Any, **__: Any) -> Any:
            return SimpleNamespace(get_vocab=lambda: vocab, **special)

    config.save_pretrained(folder / "hf")
    made: str = Converter(str(folder / "hf")).convert(str(folder / "made"), quantization=kind)
    return made


def engine_of(work: Work) -> Any:
    """Return the package CTranslate2.

    Raises:
        ImportError: it is not installed.
        RuntimeError: this build finds no CUDA device, but one is wanted.
    """
    import ctranslate2 as engine

    if work.device == "cuda" and not engine.get_cuda_device_count():
        raise RuntimeError("this build of CTranslate2 finds no CUDA device")
    return engine


def ctranslate2(work: Work, folder: Path, *, kind: str) -> Decode:
    """Make a decoder of CTranslate2, converted from Hugging Face Marian.

    Raises:
        RuntimeError: this build of CTranslate2 finds no CUDA device, but one is wanted.
    """
    engine = engine_of(work)
    from transformers import MarianConfig

    config = MarianConfig(vocab_size=work.vocab, pad_token_id=PAD, decoder_start_token_id=BEGIN)
    words = [*(f"t{i}" for i in range(work.vocab - 1)), "<pad>"]
    special = {"eos_token": "t1", "unk_token": "t2"}
    made = converted(folder, config, lambda: build_marian(work.size), words, special, kind)
    translator = engine.Translator(
        made,
        device=work.device,
        compute_type=kind,
        inter_threads=1,
        intra_threads=work.threads,
    )

    def decode(sources: Sources, beam: int) -> Sequence[Sequence[str]]:
        found = translator.translate_batch(
            [[f"t{i}" for i in source] for source in sources],
            beam_size=beam,
            min_decoding_length=work.length,
            max_decoding_length=work.length,
            max_batch_size=len(sources),
        )
        return [one.hypotheses[0] for one in found]

    return decode


def fairseq(work: Work, *, half: bool) -> Decode:
    """Make a decoder of fairseq's `transformer` with its own beam search."""
    import dataclasses

    # fairseq's dataclasses have mutable defaults; Python 3.11 requires a hash for those.
    ordinary = dataclasses._process_class  # type: ignore[attr-defined]  # noqa: SLF001

    def hashable(cls: Any, *given: Any, **named: Any) -> Any:
        made = ordinary(cls, *given, **named)
        if made.__hash__ is None:
            made.__hash__ = object.__hash__
        return made

    dataclasses._process_class = hashable  # type: ignore[attr-defined]  # noqa: SLF001
    from argparse import Namespace

    from fairseq.data import Dictionary
    from fairseq.models.transformer import TransformerModel, base_architecture
    from fairseq.sequence_generator import SequenceGenerator

    words = Dictionary()
    for index in range(work.vocab - len(words)):
        words.add_symbol(f"t{index}")
    options = Namespace(share_all_embeddings=True, dropout=0.1)
    base_architecture(options)
    task = Namespace(source_dictionary=words, target_dictionary=words)
    model: Any = TransformerModel.build_model(options, task).eval()
    if half:
        model = model.to(torch.bfloat16)
    model.prepare_for_inference_(Namespace(generation=Namespace()))

    @torch.inference_mode()
    def decode(sources: Sources, beam: int) -> Sequence[Sequence[int]]:
        generator = SequenceGenerator(
            [model], words, beam_size=beam, max_len_a=0, max_len_b=work.length, min_len=work.length
        )
        widest = max(map(len, sources))
        # fairseq pads on the left.
        ids = torch.tensor([[*[words.pad()] * (widest - len(row)), *row] for row in sources])
        lengths = torch.tensor([len(row) for row in sources])
        sample = {"net_input": {"src_tokens": ids, "src_lengths": lengths}}
        found = generator.generate([model], sample)
        return [best["tokens"][:-1].tolist() for best, *_ in found]

    return decode


def eole(work: Work, *, half: bool) -> Decode:
    """Make a decoder of Eole's Transformer with its own beam search."""
    from eole.config.run import PredictConfig
    from eole.predict import Translator
    from eole.predict.beam_search import GNMTGlobalScorer

    model, vocabs, settings = eole_parts(work.size)
    model = model.eval().to(work.device, torch.bfloat16 if half else torch.float32)
    where = -1 if work.device == "cpu" else 0
    searches: dict[int, Any] = {}

    def search(beam: int) -> Any:
        config = PredictConfig(
            model_path="-",
            src="-",
            model=settings,
            beam_size=beam,
            min_length=work.length,
            max_length=work.length,
            max_length_ratio=0,
            gpu_ranks=[] if where < 0 else [where],
            world_size=0 if where < 0 else 1,
        )
        scorer = GNMTGlobalScorer.from_config(config)
        given: dict[str, Any] = {"device_id": where, "global_scorer": scorer, "report_score": False}
        return Translator(model, vocabs, config, settings, **given)

    def decode(sources: Sources, beam: int) -> Sequence[Sequence[int]]:
        if beam not in searches:
            searches[beam] = search(beam)
        widest = max(map(len, sources))
        ids = torch.tensor([[*row, *[PAD] * (widest - len(row))] for row in sources])
        ids = ids.to(work.device)
        batch = {"src": ids, "srclen": (ids != PAD).sum(1), "prefix_len": None}
        found = searches[beam].predict_batch(batch, attn_debug=False)["predictions"]
        return [best.tolist() for best, *_ in found]

    return decode


DECODERS: dict[str, Callable[[Work, Path], Decode]] = {
    "weft float32": lambda work, _: weft(work, half=False),
    "weft bfloat16": lambda work, _: weft(work, half=True),
    "weft int8, float32": lambda work, _: weft(work, half=False, quantize=True),
    "weft int8, bfloat16": lambda work, _: weft(work, half=True, quantize=True),
    "weft shortlist, float32": lambda work, _: weft(work, half=False, shortlisted=True),
    "weft shortlist, bfloat16": lambda work, _: weft(work, half=True, shortlisted=True),
    "weft shortlist, int8, float32": lambda work, _: weft(
        work, half=False, quantize=True, shortlisted=True
    ),
    "weft graphs, float32": lambda work, _: weft(work, half=False, graphs=True),
    "weft graphs, bfloat16": lambda work, _: weft(work, half=True, graphs=True),
    "Hugging Face float32": lambda work, _: marian(work, half=False),
    "Hugging Face bfloat16": lambda work, _: marian(work, half=True),
    "CTranslate2 float32": lambda work, folder: ctranslate2(work, folder, kind="float32"),
    "CTranslate2 bfloat16": lambda work, folder: ctranslate2(work, folder, kind="bfloat16"),
    "CTranslate2 int8, bfloat16": lambda work, folder: ctranslate2(
        work, folder, kind="int8_bfloat16"
    ),
    "CTranslate2 int8": lambda work, folder: ctranslate2(work, folder, kind="int8"),
    "Eole float32": lambda work, _: eole(work, half=False),
    "Eole bfloat16": lambda work, _: eole(work, half=True),
    "fairseq float32": lambda work, _: fairseq(work, half=False),
}
