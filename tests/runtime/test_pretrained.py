"""The specs of `specs/pretrained`, which import tables fill with published weights.

`tests/parity` compares each with its source; the tests over all shipped specs leave them out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from weft.extensions.interop.export.eject import eject
from weft.graphs.cost.decode_state import state_by_node
from weft.runtime.prove.prove import prove
from weft.specs.reader import shipped_names

PARAMETERS = {
    "bloom": 559_214_592,
    "clip-text": 63_428_096,
    "clip-vision": 87_849_216,
    "deberta-v2": 184_551_780,
    "deepseek-v2": 235_741_434_880,
    "deepseek-v2-lite": 15_706_484_224,
    "electra-base": 109_483_009,
    "electra-small": 13_549_057,
    "falcon": 6_921_720_704,
    "falcon-40b": 41_303_293_952,
    "gemma2": 590_118_912 + 2_024_517_888,
    "gpt-j": 6_050_882_784,
    "gpt-oss": 20_914_757_184,
    "gpt-neox": 20_554_567_680,
    "granite": 2_533_531_648,
    "mamba2": 7_285_403_648,
    "mbart": 610_851_840 - 2 * 2 * 1024 + 250_027,
    "mixtral": 46_702_792_704,
    "modernbert": 149_655_232,
    "mpt": 6_649_286_656,
    "olmo2": 7_298_617_344,
    "olmoe": 6_919_161_856,
    "pegasus": 568_699_904 + 96_103,
    "qwen2": 7_615_616_512,
    "qwen2-tied": 494_032_768,
    "qwen3": 8_190_735_360,
    "qwen3-tied": 596_049_920,
    "stablelm": 1_644_515_328,
    "wav2vec2": 94_396_320 - 768 - 128,
    "wav2vec2-conformer": 618_591_904 - 1_024 - 8_389_760 + 49_152,
    "wav2vec2-conformer-rotary": 593_376_928 - 1_024 - 8_389_760 + 49_152,
    "wav2vec2-large": 315_471_520 - 1_024 - 128,
}
"""Parameters of the published models: those of the class of transformers at these sizes, without
two unused rows of each table of positions and with the bias of the logits, which is a buffer there.
Gemma 2: embedding and others; Gemma Team 2024, Gemma 2, table 2.  wav2vec 2.0: without the vector
of masked frames and the norms of a weight norm; the Conformers without the convolution that they
do not use, and with the running statistics of batch norms, which are buffers there."""


SMALL: dict[str, Any] = {"d_model": 16, "heads": 4, "d_ff": 24, "layers": 2, "vocab": 12}
LATENT = {"d_k": 6, "d_v": 5, "d_rotary": 4, "rank": 8, "d_expert": 8, "layers": 3}
ROUTING = {"use": "mixture_of_experts@1", "params": {"experts": 4, "top_k": 2}}
MORE: dict[str, dict[str, Any]] = {
    "clip-vision": {"height": 12, "width": 12, "patch": 4},
    "deberta-v2": {"buckets": 4, "max_length": 9},
    "deepseek-v2": {**LATENT, "query_rank": 10, "routing": ROUTING},
    "deepseek-v2-lite": {**LATENT, "routing": ROUTING},
    "electra-small": {"d_embedding": 6},
    "falcon-40b": {"kv_heads": 2},
    "gemma2": {"kv_heads": 2, "d_k": 6, "layers": 4, "distance": 3},
    "gpt-j": {"d_model": 32},
    "gpt-neox": {"d_model": 32},
    "gpt-oss": {"kv_heads": 2, "d_k": 6, "experts": 4, "top_k": 2, "distance": 3},
    "granite": {"kv_heads": 2},
    "mamba2": {"groups": 2, "chunk": 4},
    "olmoe": {"experts": 4, "top_k": 2},
    "modernbert": {"layers": 4, "distance": 3},
    "stablelm": {"d_model": 32},
    "wav2vec2": {"d_features": 8, "position_kernel": 6, "position_groups": 4},
    "wav2vec2-conformer": {"d_features": 8, "depthwise_kernel": 5},
    "wav2vec2-conformer-rotary": {"d_features": 8, "depthwise_kernel": 5},
    "wav2vec2-large": {"d_features": 8, "position_kernel": 6, "position_groups": 4},
}
"""Other params that make a spec tiny."""


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_spec_has_as_many_parameters_as_published(name: str) -> None:
    """It has no mistake and no warning, the name of its file, and a doc of one line."""
    spec = weft.load(name)

    assert list(weft.check(name)) == []
    assert spec.form.name == name
    assert spec.form.doc.endswith(".")
    assert "\n" not in spec.form.doc
    assert spec.graph().parameters() == PARAMETERS[name]


def test_all_specs_are_counted() -> None:
    """None is missing in `PARAMETERS`."""
    assert shipped_names("pretrained").keys() == PARAMETERS.keys()


@pytest.mark.parametrize(("layers", "reached"), [(1, 3), (2, 10)])
def test_only_every_second_layer_of_gemma_2_has_a_window(layers: int, reached: int) -> None:
    """The first layer reads 3 earlier positions, the second one all."""
    sizes = {"d_model": 16, "heads": 4, "kv_heads": 2, "d_k": 4, "d_ff": 16, "distance": 3}
    model = weft.build(weft.load("gemma2", **sizes, layers=layers, vocab=12), seed=1).eval()
    tokens = torch.randint(1, 12, (1, 11))
    other = tokens.clone()
    other[0, 0] = 0

    change = model(tokens=tokens)["logits"] - model(tokens=other)["logits"]

    assert change.abs().amax(-1)[0].nonzero().flatten().tolist() == list(range(reached + 1))


def test_decoding_of_latent_attention_stores_one_vector_for_each_position() -> None:
    """The compressed vector and the rotary key, in float32, whatever the number of heads."""
    graph = weft.load("deepseek-v2", **SMALL | MORE["deepseek-v2"]).graph()

    state = state_by_node(graph, {"B": 1, "T": 10})

    attention = sum(size for path, size in state.items() if path.endswith("attention"))
    assert attention == MORE["deepseek-v2"]["layers"] * 10 * (8 + 4) * 4
    assert sum(state.values()) - attention == 4  # the balance of the dense layer


@pytest.mark.slow
@pytest.mark.parametrize("name", PARAMETERS)
def test_a_spec_is_proven_and_ejected(name: str, tmp_path: Path) -> None:
    """At a tiny size; the outputs of the ejected file, which runs without Weft, are the model's."""
    known = weft.load(name).form.params
    sizes = {key: value for key, value in (SMALL | MORE.get(name, {})).items() if key in known}
    sizes |= {"kv_heads": 2} if name.startswith(("qwen", "mixtral")) else {}
    spec = weft.load(name, **sizes)

    proof = prove(spec, sizes={"T": 11} if "T" in spec.form.axes else {}, skip=["compiled"])

    assert proof.failed == ()
    assert eject(spec.graph(), tmp_path / "plain.py").compared == "outputs"
