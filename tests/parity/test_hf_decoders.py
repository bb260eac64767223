"""Llama, Mistral, Gemma, ViT and Whisper against Hugging Face: logits and generation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import weft
from torch import Tensor
from weft.blocks.frontend.audio_module import LogMel
from weft.runtime.decode.search.search import greedy
from weft.runtime.decode.stepper import ModelStepper

Padded = Callable[..., tuple[Tensor, Tensor]]
Close = Callable[[Tensor, Tensor], None]

VOCAB = 40
SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 32,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


def llama(hf: Any, **changes: Any) -> Any:
    """Return a tiny Llama with heads that share keys."""
    config = {**SIZES, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, **changes}
    return hf.LlamaForCausalLM(hf.LlamaConfig(**config))


def wide_llama(hf: Any) -> Any:
    """Return a tiny Llama with wide heads, another rotary base, and tied embeddings."""
    rope = {"rope_type": "default", "rope_theta": 500.0}
    return llama(hf, head_dim=6, rope_parameters=rope, tie_word_embeddings=True)


def mistral(hf: Any) -> Any:
    """Return a tiny Mistral with a window shorter than its inputs."""
    config = {**SIZES, "num_key_value_heads": 1, "sliding_window": 3}
    return hf.MistralForCausalLM(hf.MistralConfig(**config))


def mistral_without_window(hf: Any) -> Any:
    """Return a tiny Mistral of the third version, without a window."""
    config = {**SIZES, "num_key_value_heads": 4, "sliding_window": None}
    return hf.MistralForCausalLM(hf.MistralConfig(**config))


def gemma(hf: Any) -> Any:
    """Return a tiny Gemma with heads wider than d_model / heads."""
    config = {**SIZES, "num_key_value_heads": 1, "head_dim": 10}
    return hf.GemmaForCausalLM(hf.GemmaConfig(**config))


def gpt2(hf: Any) -> Any:
    """Return a tiny GPT-2."""
    return hf.GPT2LMHeadModel(
        hf.GPT2Config(
            vocab_size=VOCAB,
            n_positions=32,
            n_embd=16,
            n_layer=2,
            n_head=2,
            bos_token_id=1,
            eos_token_id=2,
            pad_token_id=0,
        )
    )


@pytest.mark.parametrize("make", [llama, wide_llama, mistral, mistral_without_window, gemma])
def test_a_decoder_with_right_padding(
    hf: Any,
    imported: Callable[..., Any],
    padded: Padded,
    close: Close,
    make: Callable[[Any], Any],
) -> None:
    """Logits at all unmasked positions; the table is found by the model's type."""
    theirs = make(hf)
    ours = imported(theirs)
    tokens, mask = padded(3, 11, VOCAB)

    with torch.no_grad():
        expected = theirs(tokens, attention_mask=mask.long()).logits
        found = ours(tokens=tokens)["logits"]

    close(found[mask], expected[mask])


@pytest.mark.parametrize("make", [gpt2, llama, mistral, gemma])
def test_generation_takes_the_same_tokens(
    hf: Any, imported: Callable[..., Any], tmp_path: Path, make: Callable[[Any], Any]
) -> None:
    """A checkpoint continues a batch of prompts as Hugging Face continues each one separately."""
    theirs = make(hf)
    imported(theirs, by=0.5)
    weft.import_hf(tmp_path / "theirs").save(tmp_path / "ours")
    prompts = [[5, 9, 4], [7], [11, 6, 8, 30, 21], [9, 9]]
    # An end token in the middle of the first row's output.
    free = theirs.generate(
        torch.tensor(prompts[:1]), max_new_tokens=12, do_sample=False, eos_token_id=None
    )
    end = int(free[0, len(prompts[0]) + 5])

    found = weft.open(tmp_path / "ours").generate(prompts, max_new=12, eos=end)

    for prompt, [one] in zip(prompts, found, strict=True):
        row = theirs.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            max_new_tokens=12,
            do_sample=False,
            eos_token_id=end,
            pad_token_id=0,
        )[0].tolist()[len(prompt) :]
        assert list(one.tokens) == [token for token in row if token != end]
        assert one.finished == (end in row)
    assert found[0][0].finished
    assert len({one.tokens for [one] in found}) > 1


@pytest.mark.parametrize("changes", [{}, {"qkv_bias": False, "hidden_act": "relu"}])
def test_vit(hf: Any, imported: Callable[..., Any], close: Close, changes: dict[str, Any]) -> None:
    """Logits of images, with nonzero class token and positions."""
    config = hf.ViTConfig(
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        image_size=12,
        patch_size=4,
        num_labels=7,
        **changes,
    )
    theirs = hf.ViTForImageClassification(config)
    ours = imported(theirs)
    image = torch.randn(3, 3, 12, 12, generator=torch.Generator().manual_seed(4))

    with torch.no_grad():
        expected = theirs(image).logits
        found = ours(image=image)["logits"]

    assert found.shape == (3, 7)
    close(found, expected)


def whisper(hf: Any) -> Any:
    """Return a tiny Whisper of 14 frames."""
    return hf.WhisperForConditionalGeneration(
        hf.WhisperConfig(
            vocab_size=VOCAB,
            num_mel_bins=6,
            d_model=16,
            encoder_layers=2,
            decoder_layers=3,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            encoder_ffn_dim=24,
            decoder_ffn_dim=24,
            max_source_positions=7,
            max_target_positions=12,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            decoder_start_token_id=3,
            suppress_tokens=None,
            begin_suppress_tokens=None,
        )
    )


def test_whisper(hf: Any, imported: Callable[..., Any], padded: Padded, close: Close) -> None:
    """Logits of every target position, and greedy decoding position by position."""
    theirs = whisper(hf)
    ours = imported(theirs, by=0.3)
    features = torch.randn(3, 6, 14, generator=torch.Generator().manual_seed(4))
    target, _ = padded(3, 9, VOCAB)

    with torch.no_grad():
        expected = theirs(features, decoder_input_ids=target).logits
        found = ours(features=features.transpose(1, 2), target=target)["logits"]
    close(found, expected)

    stepper = ModelStepper(ours, {"features": features.transpose(1, 2)}, beams=1, length=8)
    written = greedy(stepper, bos=3, eos=(2,), pad=0, max_lengths_N=torch.full((3,), 8))
    for row, one in enumerate(written):
        words = [3]
        while len(words) <= 8 and words[-1] != 2:
            with torch.no_grad():
                logits = theirs(
                    features[row : row + 1], decoder_input_ids=torch.tensor([words])
                ).logits[0, -1]
            logits[[3, 0]] = float("-inf")  # neither is a word
            words.append(int(logits.argmax()))
        assert list(one.tokens) == [word for word in words[1:] if word != 2]


def test_log_mel_frames_are_whispers(hf: Any) -> None:
    """For half a second of noise and a tone, cut to the frames of that half second."""
    generator = np.random.default_rng(0)
    time = np.arange(8000) / 16_000
    wave = 0.3 * np.sin(2 * np.pi * 700 * time) + 0.05 * generator.standard_normal(8000)
    extractor = hf.WhisperFeatureExtractor(chunk_length=1)

    given = extractor(wave, sampling_rate=16_000, return_tensors="np")["input_features"][0]
    padded = torch.zeros(1, 16_000, dtype=torch.float64)
    padded[0, :8000] = torch.from_numpy(wave)
    ours = LogMel(80, 16_000, 400, 160)(padded)[0].T

    assert given.shape == (80, 100)
    np.testing.assert_allclose(ours.numpy(), given, atol=1e-4)
