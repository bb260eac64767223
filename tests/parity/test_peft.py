"""LoRA in PEFT's library: exported adapters compute the same, and its own are imported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from weft.extensions.interop.export.huggingface.adapter import export_peft
from weft.extensions.interop.export.huggingface.export import export_huggingface

from ..extensions.interop.export.test_adapter import adapted, checkpoint, without

pytestmark = [pytest.mark.slow, pytest.mark.parity]
IDS = torch.tensor([[3, 5, 7, 2], [4, 4, 9, 1]])


@pytest.fixture
def peft(hf: Any) -> Any:
    """Return the library."""
    del hf
    return pytest.importorskip("peft")


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_an_exported_adapter_computes_the_same(
    name: str, hf: Any, peft: Any, tmp_path: Path
) -> None:
    """With fused and transposed tensors, rotary pairs, and scales other than one."""
    made = checkpoint(adapted(name))
    export_huggingface(without(made), tmp_path / "base", table=name)

    export_peft(made, tmp_path / "lora", table=name, base=str(tmp_path / "base"))

    base = hf.AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    theirs = peft.PeftModel.from_pretrained(base, tmp_path / "lora").eval()
    with torch.no_grad():
        found = theirs(IDS).logits
        wanted = made.build()(tokens=IDS)["logits"]
    gap = (found - wanted).abs().max() / wanted.abs().max()
    assert gap < 1e-5
    with theirs.disable_adapter(), torch.no_grad():
        assert (theirs(IDS).logits - wanted).abs().max() > 0.1


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("gpt2", {"target_modules": ["c_attn", "c_fc"], "fan_in_fan_out": True}),
        ("llama", {"target_modules": ["q_proj", "down_proj"], "use_rslora": True}),
        (
            "llama",
            {
                "target_modules": ["q_proj", "v_proj"],
                "rank_pattern": {"v_proj": 2},
                "alpha_pattern": {"layers.0.self_attn.v_proj": 3},
            },
        ),
    ],
)
def test_an_adapter_of_theirs_is_merged(
    name: str, settings: dict[str, Any], hf: Any, peft: Any, tmp_path: Path
) -> None:
    """Also with ranks and scales by pattern, and for maps that are one tensor here."""
    export_huggingface(without(checkpoint(adapted(name))), tmp_path / "base", table=name)
    base = hf.AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    torch.manual_seed(3)
    config = peft.LoraConfig(r=4, lora_alpha=10, init_lora_weights=False, **settings)
    theirs = peft.get_peft_model(base, config).eval()
    theirs.save_pretrained(tmp_path / "lora")

    made = weft.import_hf(tmp_path / "base", name, adapter=tmp_path / "lora")

    with torch.no_grad():
        wanted = theirs(IDS).logits
        found = made.build()(tokens=IDS)["logits"]
    assert (found - wanted).abs().max() / wanted.abs().max() < 1e-5
