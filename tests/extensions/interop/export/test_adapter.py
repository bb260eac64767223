"""LoRA as an adapter of PEFT's format: what is written, read and refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from safetensors.torch import load_file, save_file
from torch import Tensor
from weft.extensions.interop.export.huggingface.adapter import export_peft
from weft.extensions.interop.export.huggingface.export import export_huggingface
from weft.graphs.ir.graph import Graph
from weft.runtime.checkpoint.checkpoint import Checkpoint
from weft.runtime.checkpoint.merge import graph_without_lora, lora_factors, merged
from weft.runtime.checkpoint.saving import Contents, save
from weft.runtime.cli.main import main
from weft.runtime.spec.check import graph_of
from weft.specs.findings import InputError
from weft.specs.load import load, load_child

pytestmark = pytest.mark.integration

SMALL: dict[str, dict[str, int]] = {
    "gpt2": {"d_model": 16, "heads": 2, "layers": 2, "vocab": 11, "max_length": 12},
    "llama": {"d_model": 16, "heads": 2, "kv_heads": 1, "layers": 1, "d_ff": 10, "vocab": 11},
}


def adapted(name: str, *maps: str) -> Graph:
    """Return a small shipped spec with LoRA of rank 3 in its attention."""
    lora = {"rank": 3, "alpha": 6.0} | ({"maps": maps} if maps else {})
    patch = [{"select": "**[use=attention@1]", "set": {"params.lora": lora}}]
    known = load(name).form.params
    sizes = {key: value for key, value in SMALL[name].items() if key in known}
    return graph_of(load_child(load(name, sizes), {"name": "mine", "patch": patch}, "mine.json"))


def checkpoint(graph: Graph) -> Checkpoint:
    """Return a checkpoint with random weights."""
    torch.manual_seed(7)
    weights = {path: torch.randn(shape) for path, shape in graph.weights().items()}
    state = {"imported": {"tokens": {"begin": 3, "end": 2, "pad": 1}}}
    return Checkpoint(
        folder=Path("none"), graph=graph, weights=weights, run={}, state=state, tokenizers={}
    )


def without(made: Checkpoint) -> Checkpoint:
    """Return the base model of a checkpoint with LoRA."""
    kept = {path: one for path, one in made.weights.items() if ".lora." not in path}
    graph = graph_without_lora(made.graph)
    return Checkpoint(
        folder=made.folder, graph=graph, weights=kept, run={}, state=made.state, tokenizers={}
    )


def test_the_matrices_of_fused_maps_are_joined(tmp_path: Path) -> None:
    """GPT-2 has queries, keys and values in one tensor [inputs, outputs]."""
    made = checkpoint(adapted("gpt2", "query", "value"))

    found = export_peft(made, tmp_path / "out", table="gpt2")

    assert found.modules == 2
    assert found.difference < 1e-6
    tensors = load_file(tmp_path / "out" / "adapter_model.safetensors")
    name = "base_model.model.transformer.h.1.attn.c_attn.lora_"
    prefix = next(p for p in made.weights if p.endswith("query.lora.a.weight") and ".1." in p)
    prefix = prefix.removesuffix("query.lora.a.weight")
    a_q, b_q, a_v, b_v = (
        made.weights[f"{prefix}{name}.lora.{matrix}.weight"]
        for name in ("query", "value")
        for matrix in "ab"
    )
    zero = torch.zeros(16, 3)
    expected = torch.cat([torch.cat([b_q, zero], 1), zero.repeat(1, 2), torch.cat([zero, b_v], 1)])
    assert torch.equal(tensors[f"{name}A.weight"], torch.cat([a_q, a_v]))
    assert torch.equal(tensors[f"{name}B.weight"], expected)
    config = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["fan_in_fan_out"]) == (6, 12, True)
    assert config["target_modules"] == [f"transformer.h.{n}.attn.c_attn" for n in (0, 1)]


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_importing_the_base_with_the_adapter_merges_it(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows of rotary pairs are reordered, too; the base is compared."""
    made = checkpoint(adapted(name))
    export_huggingface(without(made), tmp_path / "base", table=name)
    contents = Contents(graph=made.graph, weights=made.weights, state=made.state)
    folder = save(tmp_path / "ours", contents)
    words = ["export", str(folder), "--to", "peft", "--as", name, "-o", str(tmp_path / "lora")]

    assert main([*words, "--base", str(tmp_path / "base")]) == 0
    assert "read again and merged" in capsys.readouterr().out
    words = ["import", "hf", str(tmp_path / "base"), "--adapter", str(tmp_path / "lora")]
    assert main([*words, "-o", str(tmp_path / "back")]) == 0

    back = load_file(tmp_path / "back" / "weights.safetensors")
    for path, weight in merged(made.weights, made.graph).items():
        torch.testing.assert_close(back[path], weight, rtol=1e-5, atol=1e-5)


def test_another_base_is_refused(tmp_path: Path) -> None:
    """Its weights are not those to which LoRA was added."""
    made = checkpoint(adapted("llama"))
    base = without(made)
    path = next(path for path in base.weights if path.endswith("query.weight"))
    other = Checkpoint(
        folder=base.folder,
        graph=base.graph,
        weights={**base.weights, path: base.weights[path] + 1.0},
        run={},
        state=base.state,
        tokenizers={},
    )
    export_huggingface(other, tmp_path / "base", table="llama")

    with pytest.raises(InputError, match=r"query\.weight. of the base model is not what LoRA"):
        export_peft(made, tmp_path / "out", table="llama", base=str(tmp_path / "base"))
    with pytest.raises(InputError, match="the model has no LoRA"):
        export_peft(base, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert lora_factors(made.graph)


def _tensors(**more: Tensor) -> dict[str, Tensor]:
    module = "base_model.model.model.layers.0.self_attn.q_proj"
    made = {
        f"{module}.lora_A.weight": torch.ones(2, 16),
        f"{module}.lora_B.weight": torch.ones(16, 2),
    }
    return made | {f"{module}.{name}": value for name, value in more.items()}


@pytest.mark.parametrize(
    ("config", "tensors", "problem"),
    [
        ({"use_dora": True}, _tensors(), "'use_dora' is True"),
        ({"alpha_pattern": {"(a+)+": 1}}, _tensors(), "is a regular expression"),
        ({}, _tensors(lora_magnitude_vector=torch.ones(16)), "is not a part of LoRA"),
        ({}, {k.replace("q_proj", "x"): v for k, v in _tensors().items()}, "has no 'layers.0"),
        ({}, {k: v[:1] for k, v in _tensors().items()}, "has matrices of shapes"),
    ],
)
def test_what_is_not_plain_lora_of_the_base_is_refused(
    config: dict[str, Any], tensors: dict[str, Tensor], problem: str, tmp_path: Path
) -> None:
    """Before anything is written."""
    export_huggingface(without(checkpoint(adapted("llama"))), tmp_path / "base", table="llama")
    lora = tmp_path / "lora"
    lora.mkdir()
    written = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, **config}
    (lora / "adapter_config.json").write_text(json.dumps(written))
    save_file({k: v.contiguous() for k, v in tensors.items()}, lora / "adapter_model.safetensors")

    with pytest.raises(InputError, match=problem.replace("(", "\\(")):
        weft.import_hf(tmp_path / "base", "llama", adapter=lora)
