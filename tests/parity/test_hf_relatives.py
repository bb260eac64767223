"""Relatives of Llama, GPT-2 and GPT-J: logits and generation as Hugging Face's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from torch import Tensor

Padded = Callable[..., tuple[Tensor, Tensor]]
Close = Callable[[Tensor, Tensor], None]

VOCAB = 40
TOKENS = {"vocab_size": VOCAB, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
SIZES = {
    **TOKENS,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 32,
}
GROUPED = {**SIZES, "num_key_value_heads": 2}
"""Sizes of decoders whose heads share keys."""
ROTARY: dict[str, Any] = {"rope_theta": 500.0}
LLAMA_3: dict[str, Any] = {
    "rope_type": "llama3",
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
NEOX = {**SIZES, "num_attention_heads": 2, "rope_parameters": {"partial_rotary_factor": 0.5}}
SMALL_FALCON = {**TOKENS, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4}
LATENT = {
    **SIZES,
    "num_hidden_layers": 3,
    "first_k_dense_replace": 1,
    "q_lora_rank": 10,
    "kv_lora_rank": 8,
    "qk_nope_head_dim": 6,
    "qk_rope_head_dim": 4,
    "v_head_dim": 5,
    "moe_intermediate_size": 8,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "n_shared_experts": 2,
    "routed_scaling_factor": 1.5,
}
"""Sizes of DeepSeek-V2, of which each axis has another one."""
GROUPS = {"topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 2}
STATES = {
    **TOKENS,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_heads": 4,
    "head_dim": 8,
    "state_size": 5,
    "n_groups": 2,
    "chunk_size": 4,
}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "olmoe": ("Olmoe", {**GROUPED, "num_experts": 5, "num_experts_per_tok": 2}),
    "olmoe, sums": (
        "Olmoe",
        {**GROUPED, "num_experts": 5, "num_experts_per_tok": 2, "norm_topk_prob": True},
    ),
    "gpt-oss": (
        "GptOss",
        {
            **GROUPED,
            "head_dim": 6,
            "num_hidden_layers": 3,
            "num_local_experts": 5,
            "num_experts_per_tok": 2,
            "sliding_window": 3,
            "swiglu_limit": 0.5,
        },
    ),
    "deepseek-v2": ("DeepseekV2", LATENT),
    "deepseek-v2, groups and yarn": (
        "DeepseekV2",
        {
            **LATENT,
            **GROUPS,
            "rope_parameters": {**ROTARY, **YARN, "mscale": 0.7, "mscale_all_dim": 0.5},
        },
    ),
    "deepseek-v2-lite": ("DeepseekV2", {**LATENT, "q_lora_rank": None}),
    "granite": (
        "Granite",
        {
            **GROUPED,
            "tie_word_embeddings": True,
            "embedding_multiplier": 3.0,
            "residual_multiplier": 0.5,
            "attention_multiplier": 0.4,
            "logits_scaling": 2.0,
        },
    ),
    "mamba2": ("Mamba2", STATES),
    "mamba2, tied": ("Mamba2", {**STATES, "n_groups": 1, "tie_word_embeddings": True}),
    "llama 3.1": ("Llama", {**GROUPED, "rope_parameters": ROTARY | LLAMA_3}),
    "llama, linear": (
        "Llama",
        {**GROUPED, "rope_parameters": {**ROTARY, "rope_type": "linear", "factor": 2.0}},
    ),
    "llama, yarn": ("Llama", {**GROUPED, "rope_parameters": ROTARY | YARN}),
    "opt": (
        "OPT",
        {
            **TOKENS,
            "hidden_size": 16,
            "ffn_dim": 24,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "max_position_embeddings": 32,
        },
    ),
    "qwen2": ("Qwen2", GROUPED),
    "qwen2, tied": ("Qwen2", {**GROUPED, "tie_word_embeddings": True}),
    "qwen3": ("Qwen3", {**GROUPED, "head_dim": 6}),
    "qwen3, tied": ("Qwen3", {**GROUPED, "head_dim": 6, "tie_word_embeddings": True}),
    "olmo2": ("Olmo2", GROUPED),
    "stablelm": ("StableLm", {**GROUPED, "use_qkv_bias": True, "partial_rotary_factor": 0.5}),
    "mixtral": ("Mixtral", {**GROUPED, "num_local_experts": 4}),
    "gemma2": (
        "Gemma2",
        {
            **GROUPED,
            "num_hidden_layers": 4,
            "head_dim": 10,
            "sliding_window": 3,
            "query_pre_attn_scalar": 7,
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 5.0,
        },
    ),
    "phi": ("Phi", {**GROUPED, "partial_rotary_factor": 0.5, "eos_token_id": 33}),
    "gpt-neox": ("GPTNeoX", NEOX),
    "falcon": ("Falcon", SMALL_FALCON),
    "falcon, biases": ("Falcon", {**SMALL_FALCON, "bias": True}),
    "falcon-40b": ("Falcon", {**SMALL_FALCON, "new_decoder_architecture": True, "num_kv_heads": 2}),
    "bloom": ("Bloom", {**TOKENS, "hidden_size": 16, "n_layer": 2, "n_head": 4}),
    "mpt": ("Mpt", {**TOKENS, "d_model": 16, "n_layers": 2, "n_heads": 4, "max_seq_len": 32}),
    "gpt-j": (
        "GPTJ",
        {**TOKENS, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32, "rotary_dim": 4},
    ),
}
SPREAD = {
    "opt": 1.0,
    "olmo2": 0.2,
    "stablelm": 1.0,
    "gemma2": 0.2,
    "gpt-neox": 1.0,
    "falcon-40b": 0.3,
    "bloom": 0.2,
    "olmoe": 0.2,
    "olmoe, sums": 0.2,
    "deepseek-v2": 0.2,
    "deepseek-v2, groups and yarn": 0.2,
    "deepseek-v2-lite": 0.2,
    "mamba2": 0.2,
    "mamba2, tied": 0.2,
}
"""How much weights are perturbed for a text of several words, if not by 0.5."""
EVERY = pytest.mark.parametrize("name", MODELS)
CACHES = {
    *("bloom", "deepseek-v2", "gemma2", "gpt-neox"),
    *("gpt-oss", "llama, yarn", "mamba2", "olmoe", "opt"),
}
"""Models whose positions and states together are those of all."""


def theirs_of(hf: Any, name: str) -> Any:
    """Return a tiny random model."""
    family, sizes = MODELS[name]
    torch.manual_seed(0)
    model = getattr(hf, f"{family}ForCausalLM")(getattr(hf, f"{family}Config")(**sizes))
    model.set_experts_implementation("eager")  # the usual kernels need widths of 16 bytes
    return model


@EVERY
def test_a_decoder_with_right_padding(
    hf: Any, imported: Callable[..., Any], padded: Padded, close: Close, name: str
) -> None:
    """Logits at all unmasked positions; the table is found by the model's type."""
    theirs = theirs_of(hf, name)
    ours = imported(theirs)
    tokens, mask = padded(3, 25, VOCAB)

    with torch.no_grad():
        expected = theirs(tokens, attention_mask=mask.long()).logits
        found = ours(tokens=tokens)["logits"]

    close(found[mask], expected[mask])


@pytest.mark.parametrize(
    "name",
    [n if n in CACHES else pytest.param(n, marks=pytest.mark.exhaustive) for n in MODELS],
)
def test_generation_takes_the_same_tokens(
    hf: Any, imported: Callable[..., Any], tmp_path: Path, name: str
) -> None:
    """A checkpoint continues a batch of prompts as Hugging Face continues each one separately."""
    theirs = theirs_of(hf, name)
    imported(theirs, by=SPREAD.get(name, 0.5))
    weft.import_hf(tmp_path / "theirs").save(tmp_path / "ours")
    prompts = [[5, 9, 4], [7], [11, 6, 8, 30, 21], [9, 9]]

    found = weft.open(tmp_path / "ours").generate(prompts, max_new=9)

    for prompt, [one] in zip(prompts, found, strict=True):
        row = theirs.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            max_new_tokens=9,
            do_sample=False,
        )[0].tolist()[len(prompt) :]
        assert list(one.tokens) == [token for token in row if token != theirs.config.eos_token_id]
    assert len({token for [one] in found for token in one.tokens}) > 4
