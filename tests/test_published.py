"""Published ideas of `examples/published`: correct, and equal to their formulas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from torch import Tensor
from torch.nn.functional import layer_norm, logsigmoid
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


PUBLISHED_FORMULAS_FOLDER = Path(__file__).parents[1] / "examples/published"
SIZES = {"d_model": 8, "heads": 2, "layers": 1, "vocab": 12}


def built(name: str, **sizes: Any) -> Any:
    """Return a small model in float64, whose weights are not those of its initialization."""
    model = (
        weft.build(weft.load(PUBLISHED_FORMULAS_FOLDER / f"{name}.json", **sizes), seed=1)
        .double()
        .eval()
    )
    generator = torch.Generator().manual_seed(2)
    for weight in model.parameters():
        noise = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
        weight.data.add_(0.3 * noise)
    return model


def drawn(*sizes: int) -> Tensor:
    """Return vectors in float64."""
    return torch.randn(sizes, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def heads(x: Tensor, count: int) -> Tensor:
    """Split vectors [B, T, D] into heads [B, H, T, D / H]."""
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


@pytest.mark.integration
def test_streaming_attention_within_its_window_is_that_of_llama() -> None:
    """Its weights are llama's; with a window of 3, only the first 2 + 3 positions are equal."""
    sizes = {"d_model": 16, "heads": 2, "d_ff": 24, "layers": 2, "vocab": 12}
    halves = {"use": "rotary@1", "params": {"pairs": "halves"}}
    llama: Any = weft.build(weft.load("llama", **sizes, position=halves), seed=1).double().eval()
    tokens = torch.randint(12, (2, 9), generator=torch.Generator().manual_seed(4))
    expected = llama(tokens=tokens)["logits"]
    for window, same in ((9, 9), (3, 5)):
        model = built("streaming", **sizes, sinks=2, window=window)
        model.load_state_dict(llama.state_dict())
        logits = model(tokens=tokens)["logits"]
        torch.testing.assert_close(logits[:, :same], expected[:, :same], atol=1e-5, rtol=0)
        assert same == 9 or not torch.allclose(logits[:, same:], expected[:, same:])


@pytest.mark.integration
def test_landmarks_of_single_tokens_give_the_attention_of_transformers() -> None:
    """With A = softmax(Q K^T) of as many landmarks as tokens, A A^+ A = A."""
    model = built("nystrom", **SIZES, landmarks=5, iterations=20, kernel=3)
    attention = model.get_submodule("encoder.0.self_attention.f")
    attention.convolution.weight.data.zero_()
    x, mask = drawn(1, 7, 8), torch.tensor([[True] * 5 + [False] * 2])

    y = attention(x=x, mask=mask)

    query, key = (heads(getattr(attention, name).map(x[:, :5]), 2) for name in ("query", "key"))
    value = heads(attention.value(x[:, :5]), 2)
    weights = (query @ key.mT / 2).softmax(-1)
    expected = attention.out((weights @ value).transpose(1, 2).reshape(1, 5, 8))
    torch.testing.assert_close(y[:, :5], expected, atol=1e-6, rtol=1e-6)


@pytest.mark.integration
def test_a_step_of_ttt_linear_is_gradient_descent_from_the_state_before_its_batch() -> None:
    """With batches of 3, autograd gives the gradients of 7 positions at the state before each."""
    model = built("ttt-linear", **SIZES, d_ff=8, batch=3)
    layer = model.get_submodule("decoder.0.self_attention.f")
    cell = layer.scan.cell
    x = drawn(1, 7, 8)
    q, k, v = (layer.get_submodule(name)(x=x)[0] for name in ("q", "k", "v"))
    rate = layer.gate(x).sigmoid()[0] / 4
    w, b = cell.w_start.weight.clone(), cell.b_start.weight.clone()
    outputs = []

    def answer(at: Tensor, w: Tensor, b: Tensor) -> Tensor:
        z = torch.einsum("hd,hde->he", at, w) + b
        return at + layer_norm(z, (4,), eps=1e-6) * cell.gain.weight + cell.shift.weight

    for t in range(7):
        if t % 3 == 0:
            base = [w.detach().requires_grad_(), b.detach().requires_grad_()]
        loss = (answer(k[t], *base) - v[t]).square().sum() / 2
        by_w, by_b = torch.autograd.grad(loss, base)
        w, b = w - rate[t][:, None, None] * by_w, b - rate[t][:, None] * by_b
        outputs.append(answer(q[t], w, b).flatten())

    torch.testing.assert_close(layer(x=x)[0], layer.out(torch.stack(outputs)))


@pytest.mark.integration
def test_the_matrix_memory_of_xlstm_is_its_recurrence() -> None:
    """Beck et al. 2024, equations 19 to 27, without what keeps the numbers small."""
    memory = built("xlstm", **SIZES | {"layers": 2}).get_submodule("stack.0.memory")
    x, short = drawn(1, 6, 16), drawn(1, 6, 16).flip(1)
    query, key, value = (
        heads(getattr(memory, name).map(vectors), 2)[0]
        for name, vectors in (("query", short), ("key", short), ("value", x))
    )
    i, f = memory.gates(short)[0].split(2, -1)
    c, n = torch.zeros(2, 8, 8).double(), torch.zeros(2, 8).double()
    outputs = []
    for t in range(6):
        gate = (15 * torch.tanh(i[t] / 15)).exp()
        decay = logsigmoid(f[t]).exp()
        k, v, q = key[:, t] / 8**0.5, value[:, t], query[:, t]
        c = decay[:, None, None] * c + gate[:, None, None] * v[:, :, None] * k[:, None]
        n = decay[:, None] * n + gate[:, None] * k
        size = (n * q).sum(-1).abs().clamp(min=1)
        outputs.append(memory.norm((c @ q[:, :, None])[..., 0] / size[:, None]).flatten())

    torch.testing.assert_close(memory(x=x, short=short)[0], torch.stack(outputs))


@pytest.mark.integration
def test_distances_of_the_funnel_are_those_of_positions_before_pooling() -> None:
    """(q + v) W R(2 i - j), with R of sines and cosines, for queries of every second position."""
    model = built("funnel", **SIZES | {"layers": 2})
    scores = model.get_submodule("half.attention.f.distances")
    query = drawn(1, 2, 3, 4)
    memory = torch.arange(6.0, dtype=torch.float64)
    at = model.at(torch.zeros(1, 6, 8, dtype=torch.float64))

    y = scores(query=query, at=at[:, ::2], memory_at=at)

    angles = (memory[::2, None] - memory)[..., None] / 10000 ** (torch.arange(4.0).double() / 4)
    distances = torch.cat([angles.sin(), angles.cos()], -1)
    biased = query[0] + scores.bias.weight[:, None]
    expected = torch.einsum("htk,hkd,tsd->hts", biased, scores.map.weight, distances)
    torch.testing.assert_close(y[0], expected, atol=1e-5, rtol=0)


@pytest.mark.integration
def test_predictive_coding_chooses_among_the_vectors_of_a_recording() -> None:
    """InfoNCE of the next vector and the one after it, over 5 vectors and 3 of padding."""
    encoder = {"spec": "cpc-encoder", "params": {"d_model": 6, "d_context": 4}}
    sizes = {"d_model": 6, "steps": 2, "model": encoder}
    model = built("contrastive-prediction", **sizes)
    z, c = drawn(1, 8, 6), drawn(1, 8, 4)
    mask = torch.tensor([[True] * 5 + [False] * 3])
    for by, later in enumerate(model.later, start=1):
        scores = later.w(c)[0, : 5 - by] @ z[0, :5].T
        expected = -scores.log_softmax(-1).diagonal(by).sum()
        surprise = later(z=z, c=c, mask=mask)
        torch.testing.assert_close(surprise[0, : 5 - by].sum(), expected)


@pytest.mark.integration
def test_states_of_ngpt_are_unit_vectors() -> None:
    """After every sub-layer, whatever the weights."""
    model = built("ngpt", **SIZES | {"layers": 2})
    layer = model.get_submodule("decoder.0")
    x = torch.nn.functional.normalize(drawn(1, 5, 8), dim=-1)

    y = layer(x=x, at=drawn(1, 5, 4))

    torch.testing.assert_close(y.norm(dim=-1), torch.ones(1, 5).double())


@pytest.mark.integration
def test_a_difference_of_equal_softmaxes_is_one_softmax_less_its_factor() -> None:
    """With equal maps, (1 - factor) softmax(q k) v, which the norm of a head makes softmax(q k) v.

    Ye et al. 2025, equation 1; the factor is 0.2 in the first layer.
    """
    model = built("differential", **SIZES, d_ff=8)
    attention = model.get_submodule("decoder.0.self_attention.f")
    attention.second.load_state_dict(attention.first.state_dict())
    attention.minus.load_state_dict(attention.plus.state_dict())
    x, at = drawn(1, 5, 8), drawn(1, 5, 2)
    value = heads(attention.value(x), 2)

    y = attention(x=x, at=at)

    expected = attention.norm(0.8 * attention.first(x=x, at=at, value=value))
    torch.testing.assert_close(y, attention.out(0.8 * expected.transpose(1, 2).flatten(2)))


@pytest.mark.integration
def test_the_local_model_of_megabyte_reads_earlier_patches_from_the_global_one_alone() -> None:
    """Without the map from the global model, a patch of 3 bytes knows nothing of the others."""
    sizes = {"patch": 3, "d_byte": 4, "d_local": 8, "local_heads": 2, "heads": 2}
    model = built("megabyte", **sizes, layers=1, local_layers=1, vocab=12)
    tokens = torch.tensor([[1, 2, 3, 4, 5, 6]])
    others = torch.tensor([[7, 8, 9, 10, 5, 6]])
    y, z = model(tokens=tokens)["logits"], model(tokens=others)["logits"]
    assert not torch.allclose(y[:, 3:], z[:, 3:])

    model.from_global.weight.data.zero_()

    y, z = model(tokens=tokens)["logits"], model(tokens=others)["logits"]
    torch.testing.assert_close(y[:, 3:], z[:, 3:])
    assert not torch.allclose(y[:, :3], z[:, :3])
