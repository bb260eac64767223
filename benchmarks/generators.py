"""Generators of GPT-2 small by Weft and its peers, for the same job.

`GENERATORS[name](work, folder)` makes a decoder as `decoders.py` does, whose sources are prompts.
Sizes are those of Radford et al. 2019 and weights are random.  No token ends an output, so that
every output has exactly the maximal number of tokens.  Search is greedy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from decoders import Decode, Sources, Work, converted, engine_of


def config(work: Work) -> Any:
    """Return the configuration of GPT-2 small in Hugging Face, without an end token."""
    from transformers import GPT2Config

    return GPT2Config(vocab_size=work.vocab, bos_token_id=None, eos_token_id=None)


def weft(work: Work, *, half: bool, quantize: bool = False, graphs: bool = False) -> Decode:
    """Make a generator that works like `weft generate`, optionally with `--compile graphs`."""
    import weft
    from weft.runtime.compile.decode_compile import Steps
    from weft.runtime.compile.decoder import Passes, use_passes, use_steps
    from weft.runtime.data.prompts import WrittenIds
    from weft.runtime.decode.decode import Request
    from weft.runtime.decode.predictors.continuing import Continuing
    from weft.runtime.decode.predictors.predictor import Context
    from weft.runtime.decode.settings import GenerateSettings
    from weft.runtime.model.answering import TEXT, PromptText
    from weft.runtime.system.memory import WHILE_DECODING, keep_freed_memory

    keep_freed_memory(WHILE_DECODING)
    model: Any = weft.build(weft.load("gpt2", vocab=work.vocab)).eval().to(work.device)
    use_passes(model, Passes("int8" if quantize else "none"))
    use_steps(model, Steps("graphs" if graphs else "off"))
    settings = GenerateSettings(max_new=work.length)

    seen: set[int] = set()

    def decode(sources: Sources, beam: int) -> Sequence[Sequence[int]]:
        if graphs and len(sources) not in seen:  # steps are recorded when they run a second time
            seen.add(len(sources))
            decode(sources, beam)
        context = Context((model,), {TEXT: PromptText(WrittenIds(), ())}, TEXT, half=half)
        requests = [Request((), prompt=ids) for ids in sources]
        outputs = Continuing.of(context, settings).decode_requests(requests)
        return [one.tokens for [one] in outputs]

    return decode


def hugging_face(work: Work, *, half: bool) -> Decode:
    """Make a generator of GPT2LMHeadModel, with its cache."""
    from transformers import GPT2LMHeadModel

    model: Any = GPT2LMHeadModel(config(work)).eval().to(work.device)
    if half:
        model = model.to(torch.bfloat16)

    @torch.inference_mode()
    def decode(sources: Sources, _: int) -> Sequence[Sequence[int]]:
        ids = torch.tensor(sources, device=work.device)
        found = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            min_new_tokens=work.length,
            max_new_tokens=work.length,
            pad_token_id=0,
            use_cache=True,
        )
        return [row[ids.size(1) :] for row in found.tolist()]

    return decode


def ctranslate2(work: Work, folder: Path, *, kind: str) -> Decode:
    """Make a generator of CTranslate2, converted from GPT2LMHeadModel.

    Raises:
        RuntimeError: this build of CTranslate2 finds no CUDA device, but one is wanted.
    """
    engine = engine_of(work)
    from transformers import GPT2LMHeadModel

    words = [f"t{i}" for i in range(work.vocab)]
    special = dict.fromkeys(("bos_token", "eos_token", "unk_token"), words[0])
    made = converted(
        folder, config(work), lambda: GPT2LMHeadModel(config(work)), words, special, kind
    )
    generator = engine.Generator(
        made,
        device=work.device,
        compute_type=kind,
        inter_threads=1,
        intra_threads=work.threads,
    )

    def decode(sources: Sources, beam: int) -> Sequence[Sequence[int]]:
        found = generator.generate_batch(
            [[f"t{i}" for i in source] for source in sources],
            beam_size=beam,
            min_length=work.length,
            max_length=work.length,
            max_batch_size=len(sources),
            include_prompt_in_result=False,
        )
        return [one.sequences_ids[0] for one in found]

    return decode


GENERATORS: dict[str, Callable[[Work, Path], Decode]] = {
    "weft float32": lambda work, _: weft(work, half=False),
    "weft bfloat16": lambda work, _: weft(work, half=True),
    "weft graphs, bfloat16": lambda work, _: weft(work, half=True, graphs=True),
    "weft int8, float32": lambda work, _: weft(work, half=False, quantize=True),
    "weft int8, bfloat16": lambda work, _: weft(work, half=True, quantize=True),
    "Hugging Face float32": lambda work, _: hugging_face(work, half=False),
    "Hugging Face bfloat16": lambda work, _: hugging_face(work, half=True),
    "CTranslate2 float32": lambda work, folder: ctranslate2(work, folder, kind="float32"),
    "CTranslate2 bfloat16": lambda work, folder: ctranslate2(work, folder, kind="bfloat16"),
    "CTranslate2 int8": lambda work, folder: ctranslate2(work, folder, kind="int8"),
}
