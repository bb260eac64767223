"""Published configurations, including older formats, give specs of the known sizes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from weft.extensions.interop.importing.config import read_configuration, settle
from weft.extensions.interop.importing.hf import graph_from, table_for
from weft.extensions.interop.importing.table import load_table
from weft.graphs.ir.graph import BlockNode, RepeatNode
from weft.specs.findings import SpecError

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "max_position_embeddings": 4096,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 32,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "tie_word_embeddings": False,
    "vocab_size": 32000,
}
FIRST_LLAMA = {k: v for k, v in LLAMA.items() if k not in ("num_key_value_heads", "rope_scaling")}
SMOL = LLAMA | {
    "bos_token_id": 0,
    "eos_token_id": 0,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_attention_heads": 9,
    "num_hidden_layers": 30,
    "num_key_value_heads": 3,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "vocab_size": 49152,
}
MISTRAL = {
    "architectures": ["MistralForCausalLM"],
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 32768,
    "model_type": "mistral",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05,
    "rope_theta": 10000.0,
    "sliding_window": 4096,
    "tie_word_embeddings": False,
    "vocab_size": 32000,
}
GEMMA = {
    "architectures": ["GemmaForCausalLM"],
    "attention_bias": False,
    "bos_token_id": 2,
    "eos_token_id": 1,
    "head_dim": 256,
    "hidden_act": "gelu",
    "hidden_size": 2048,
    "intermediate_size": 16384,
    "max_position_embeddings": 8192,
    "model_type": "gemma",
    "num_attention_heads": 8,
    "num_hidden_layers": 18,
    "num_key_value_heads": 1,
    "pad_token_id": 0,
    "rms_norm_eps": 1e-06,
    "rope_theta": 10000.0,
    "vocab_size": 256000,
}
VIT = {
    "architectures": ["ViTForImageClassification"],
    "attention_probs_dropout_prob": 0.0,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.0,
    "hidden_size": 768,
    "id2label": {str(i): f"class {i}" for i in range(1000)},
    "image_size": 224,
    "intermediate_size": 3072,
    "layer_norm_eps": 1e-12,
    "model_type": "vit",
    "num_attention_heads": 12,
    "num_channels": 3,
    "num_hidden_layers": 12,
    "patch_size": 16,
}
WHISPER = {
    "activation_function": "gelu",
    "architectures": ["WhisperForConditionalGeneration"],
    "d_model": 384,
    "decoder_attention_heads": 6,
    "decoder_ffn_dim": 1536,
    "decoder_layers": 4,
    "decoder_start_token_id": 50258,
    "dropout": 0.0,
    "encoder_attention_heads": 6,
    "encoder_ffn_dim": 1536,
    "encoder_layers": 4,
    "eos_token_id": 50257,
    "max_source_positions": 1500,
    "max_target_positions": 448,
    "model_type": "whisper",
    "num_mel_bins": 80,
    "pad_token_id": 50257,
    "scale_embedding": False,
    "vocab_size": 51865,
}


PUBLISHED = json.loads(Path(__file__).with_name("published.json").read_text(encoding="utf-8"))
"""Name of a model to its table, the configuration that its folder has as far as tables read it, and
its number of parameters: without rows of tables of positions that no position reads, and with the
bias of the logits, which is a buffer there."""


def settled(table: str, config: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the values of a shipped table for a configuration."""
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    loaded, source = load_table(table)
    return settle(loaded, source, read_configuration(folder, loaded))


@pytest.mark.parametrize(
    ("table", "config", "parameters"),
    [
        ("llama", LLAMA, 6_738_415_616),
        ("llama", FIRST_LLAMA, 6_738_415_616),
        ("llama", SMOL, 134_515_008),
        ("mistral", MISTRAL, 7_241_732_096),
        ("gemma", GEMMA, 2_506_172_416),
        ("vit", VIT, 86_567_656),
        ("whisper", WHISPER, 37_184_640),
    ],
)
def test_a_published_configuration_has_the_known_size(
    tmp_path: Path, table: str, config: dict[str, Any], parameters: int
) -> None:
    """Whisper's sinusoidal encoder positions, 576,000 numbers, are not parameters here."""
    found = settled(table, config, tmp_path)

    graph = graph_from(found, "")

    assert graph.parameters() == parameters
    assert found["tokens"].get("end") == config.get("eos_token_id")


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_configuration_of_the_hub_has_the_known_size(tmp_path: Path, name: str) -> None:
    """The configurations are those of the Hub, with keys of older formats."""
    one = PUBLISHED[name]
    found = settled(one["table"], one["config"], tmp_path)

    assert graph_from(found, "").parameters() == one["parameters"]


@pytest.mark.parametrize("name", ["falcon-7b", "falcon-40b"])
def test_a_table_is_chosen_by_the_settings_that_it_supports(tmp_path: Path, name: str) -> None:
    """Both models have the same type and class."""
    text = json.dumps(PUBLISHED[name]["config"])
    (tmp_path / "config.json").write_text(text, encoding="utf-8")

    assert table_for(tmp_path) == f"hf-{PUBLISHED[name]['table']}"


def test_gelu_of_the_first_gemma_is_the_approximation(tmp_path: Path) -> None:
    """Its configuration says `gelu`, but the model computes the tanh approximation."""
    found = settled("gemma", GEMMA, tmp_path)

    graph = graph_from(found, "")
    decoder = next(node for node in graph.root.nodes if node.name == "decoder")
    assert isinstance(decoder, RepeatNode)
    gates = {
        node.part.fill["f"].arguments["activation"]
        for node in decoder.body.nodes
        if isinstance(node, BlockNode) and node.name == "feed_forward"
    }
    assert gates == {"gelu_tanh"}


@pytest.mark.parametrize(
    ("table", "config", "problem"),
    [
        (
            "llama",
            LLAMA | {"rope_scaling": {"type": "dynamic", "factor": 2.0}},
            "'rope_parameters__rope_type' is dynamic, but only default, linear, llama3, yarn",
        ),
        ("llama", LLAMA | {"attention_bias": True}, "attention with biases"),
        ("vit", VIT | {"image_size": [224, 200]}, "image_size"),
        ("whisper", WHISPER | {"decoder_ffn_dim": 1024}, "stacks with other widths"),
    ],
)
def test_unsupported_configurations_are_reported(
    tmp_path: Path, table: str, config: dict[str, Any], problem: str
) -> None:
    """Determined by the configuration only, before a weight is read."""
    with pytest.raises(SpecError, match=problem):
        settled(table, config, tmp_path)
