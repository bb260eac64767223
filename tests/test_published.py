"""The published ideas of `examples/published` are correct specs, objectives and runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from weft.blocks.kernels.decode_state import Capacity
from weft.graphs.cost.decode_state import state_by_node
from weft.graphs.draw.diagram import diagram
from weft.runtime.prove.prove import prove
from weft.runtime.train.plan import load_run, plan_run

from .runtime.entries import PUBLISHED
from .runtime.entries import PUBLISHED_FOLDER as FOLDER

RUNS = sorted(FOLDER.glob("*-run.json"))
SPECS = sorted({*FOLDER.glob("*.json")} - {*RUNS})
DECODING = [file.stem for file in SPECS if weft.load(file).graph().step_axis]


@pytest.mark.parametrize("file", SPECS, ids=lambda file: file.stem)
def test_a_spec_has_no_mistake_and_no_warning(file: Path) -> None:
    """They are written as a user would write them."""
    assert list(weft.check(file)) == []


@pytest.mark.parametrize("file", SPECS, ids=lambda file: file.stem)
def test_a_spec_is_drawn(file: Path) -> None:
    """The drawing has the name of each of its nodes."""
    spec = weft.load(file)

    source = diagram(spec.graph()).source

    assert all(name in source for name in spec.graph().spec.nodes)


@pytest.mark.integration
@pytest.mark.parametrize("name", DECODING)
def test_decoding_gives_the_outputs_of_the_parallel_pass(name: str) -> None:
    """Over 11 positions, more than a window or a kernel; gradients reach every parameter."""
    spec = weft.load(FOLDER / f"{name}.json", **PUBLISHED[name])

    proof = prove(spec, sizes={"T": 11}, only=["steps", "causality", "gradients"])

    assert {one.name: one.outcome for one in proof.properties} == dict.fromkeys(
        ("steps", "causality", "gradients"), "passed"
    )


@pytest.mark.parametrize("file", RUNS, ids=lambda file: file.stem)
def test_a_run_lacks_only_its_data(file: Path) -> None:
    """The files of a run are the user's."""
    run, source = load_run(file)

    findings = plan_run(run, source).findings

    assert {finding.code for finding in findings} == {"R02"}
    assert all(finding.at.startswith("/data") for finding in findings)


@pytest.mark.parametrize(
    ("changes", "at", "problem", "help_"),
    [
        ({"output": "head"}, "/predict/output", "'biaffine' has none of", "did you mean 'heads'?"),
        ({"words": None}, "/predict", "reads the columns 'text', 'pos'", "set 'words' to its name"),
        ({"words": "heads"}, "/predict/words", "does not read the column 'heads'", "text"),
    ],
)
def test_a_predictor_that_does_not_fit_the_parser_is_refused_before_training(
    changes: dict[str, Any], at: str, problem: str, help_: str
) -> None:
    """It would be refused after the data are prepared otherwise."""
    run, source = load_run(FOLDER / "biaffine-run.json")
    predict: Any = run.predict
    run = run.model_copy(update={"predict": predict.model_copy(update=changes)})

    [finding] = [f for f in plan_run(run, source).findings if f.code == "R04"]

    assert finding.at == at
    assert problem in finding.problem
    assert help_ in finding.help


def test_all_files_are_tested() -> None:
    """The folder is found."""
    assert RUNS
    assert SPECS


def test_padding_changes_no_frame_of_a_conformer() -> None:
    """Its convolutions read the padding of a batch as zeros, and its attention not at all."""
    sizes: dict[str, Any] = {"d_model": 16, "layers": 2, "kernel": 5, "mels": 8, "vocab": 12}
    model = weft.build(weft.load(FOLDER / "conformer.json", **sizes), seed=1).eval()
    wave = torch.randn(1, 640 * 6)
    padded = torch.cat([wave, torch.randn(1, 640 * 4)], 1)
    mask = torch.arange(padded.size(1))[None] < wave.size(1)

    alone = model(audio=wave, audio_mask=torch.ones_like(wave, dtype=torch.bool))
    batched = model(audio=padded, audio_mask=mask)

    assert batched["mask"].tolist() == [[True] * 6 + [False] * 4]
    torch.testing.assert_close(batched["logits"][:, :6], alone["logits"])


def test_primer_with_kernels_that_copy_is_a_transformer_with_squared_relu() -> None:
    """Kernels of 0, 0 and 1 leave queries, keys and values as they are; others do not."""
    sizes = PUBLISHED["primer"]
    primer = weft.build(weft.load(FOLDER / "primer.json", **sizes), seed=1).eval()
    plain = weft.build(weft.load("gpt2", **sizes, activation="squared_relu"), seed=2).eval()
    weights = primer.state_dict()
    kernels = [weight for path, weight in weights.items() if path.endswith("convolution.weight")]
    plain.load_state_dict({path: weights[path] for path in plain.state_dict()})
    tokens = torch.randint(12, (2, 7))
    wanted = plain(tokens=tokens)["logits"]

    assert len(kernels) == 3
    assert not torch.allclose(primer(tokens=tokens)["logits"], wanted)
    for kernel in kernels:
        kernel.copy_(torch.tensor([0.0, 0.0, 1.0]).expand_as(kernel))
    torch.testing.assert_close(primer(tokens=tokens)["logits"], wanted)


def test_keys_and_values_of_latent_attention_are_maps_of_the_compressed_vector() -> None:
    """Its width is 6; the features of keys are 8 and 4 rotary ones for each of 2 heads.

    Decoding stores this vector alone, for 7 positions of 2 layers.
    """
    spec = weft.load(FOLDER / "latent-attention.json", **PUBLISHED["latent-attention"])
    weights = spec.graph().weights()
    path = "decoder.0.attention.f"

    assert weights[f"{path}.compress.weight"] == (6, 16)
    assert weights[f"{path}.attention.key.weight"] == (2 * (8 + 4), 6)
    assert weights[f"{path}.attention.value.weight"] == (2 * 8, 6)
    kept = state_by_node(spec.graph(), {"B": 1, "T": 7})
    assert kept == {"decoder.*.attention/f.attention": 2 * 7 * 6 * 4}  # 4 bytes of 6 floats


def test_layers_of_transformer_xl_share_the_vectors_of_contents_and_positions() -> None:
    """The vectors u and v have no index of the layer in section 3.3; the maps of distances have."""
    sizes = PUBLISHED["transformer-xl"]
    model = weft.build(weft.load(FOLDER / "transformer-xl.json", **sizes), seed=1)
    layers: list[Any] = [model.get_submodule(f"decoder.{i}.attention.f.position") for i in (0, 1)]
    first, second = layers

    assert first.content_bias is second.content_bias
    assert first.position_bias is second.position_bias
    assert not torch.equal(first.distance.weight, second.distance.weight)


def test_decoding_stores_the_keys_and_values_of_a_pair_of_layers_once() -> None:
    """Two pairs store 7 positions of 2 x 8 floats each, and not 4 layers; as does the formula."""
    sizes = PUBLISHED["cross-layer-attention"]
    spec = weft.load(FOLDER / "cross-layer-attention.json", **sizes)
    model: Any = weft.build(spec, seed=1)

    state = model.begin(Capacity(1, 1, 7, torch.float32, torch.device("cpu")))
    stored = [b for layer in state["decoder"] for b in layer["attention_1"].appended.values()]

    assert [set(layer) for layer in state["decoder"]] == [{"attention_1"}] * 2
    assert sum(buffer.numel() for buffer in stored) == 2 * 7 * (8 + 8)
    kept = state_by_node(spec.graph(), {"B": 1, "T": 7})
    assert kept["decoder.*.attention_1"] == 4 * 2 * 7 * (8 + 8)


def test_guided_alignment_is_the_mean_surprise_of_the_aligned_words() -> None:
    """Of 3 target words and a padding, 2 are aligned to a source word: the loss counts 2 items."""
    objective = weft.load(
        FOLDER / "guided-translation.json",
        model={"spec": "guided-alignment", "params": {"d_model": 16, "heads": 2, "layers": 2}},
        source_vocab=12,
        vocab=12,
        numbers=9,
    )
    module: Any = weft.build(objective, seed=1).eval()
    columns = {
        "source": torch.tensor([[5, 6, 7]]),
        "source_numbers": torch.tensor([[4, 5, 6]]),
        "target": torch.tensor([[8, 9, 10, 0]]),
        "aligned_numbers": torch.tensor([[6, 8, 4, 0]]),
    }
    shifted = module.shifted(x=columns["target"])
    model = module.model(
        source=columns["source"], source_mask=columns["source"] > 0, target=shifted
    )
    logs = model["alignment"][0] if isinstance(model, dict) else model[0][0]

    assert int(module.weights(**columns)["guide"]) == 2
    expected = -(logs[0, 2] + logs[2, 0])
    torch.testing.assert_close(module(**columns)["guide"], expected)
