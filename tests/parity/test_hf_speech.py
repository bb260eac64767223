"""Speech models from waveforms: logits as Hugging Face's, in single and in double precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import weft
from torch import Tensor

Close = Callable[[Tensor, Tensor], None]

SIZES: dict[str, Any] = {
    "vocab_size": 20,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "conv_dim": [8] * 7,
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 4,
}
LAYER = {**SIZES, "feat_extract_norm": "layer", "conv_bias": True}
CONFORMER = {**LAYER, "conv_depthwise_kernel_size": 5, "hidden_act": "swish"}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "base": ("Wav2Vec2", SIZES),
    "base, odd kernel": ("Wav2Vec2", {**SIZES, "num_conv_pos_embeddings": 7}),
    "large": ("Wav2Vec2", {**LAYER, "do_stable_layer_norm": True}),
    "relative": ("Wav2Vec2Conformer", CONFORMER),
    "rotary": ("Wav2Vec2Conformer", {**CONFORMER, "position_embeddings_type": "rotary"}),
}
FRAMES = [9, 7, 4]
LENGTHS = [320 * frames + 80 for frames in FRAMES]


def theirs_of(hf: Any, name: str) -> Any:
    """Return a tiny random model with varied running statistics."""
    family, sizes = MODELS[name]
    torch.manual_seed(0)
    theirs = getattr(hf, f"{family}ForCTC")(getattr(hf, f"{family}Config")(**sizes))
    for path, buffer in theirs.named_buffers():
        if path.endswith("running_var"):
            buffer.uniform_(0.5, 1.5)
        elif path.endswith("running_mean"):
            buffer.normal_()
    return theirs


def waveforms() -> tuple[Tensor, Tensor]:
    """Return random samples [3, 2960] and their mask; padding is silence."""
    samples = torch.arange(LENGTHS[0])
    mask = samples < torch.tensor(LENGTHS)[:, None]
    audio = torch.randn(mask.shape, generator=torch.Generator().manual_seed(1))
    return audio * mask, mask


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", MODELS)
def test_padded_waveforms(
    hf: Any, imported: Callable[..., Any], close: Close, name: str, dtype: torch.dtype
) -> None:
    """Logits of all frames without padding, which each row has as many of as alone."""
    theirs = theirs_of(hf, name)
    ours = imported(theirs).to(dtype)
    theirs.to(dtype)
    audio, mask = waveforms()

    with torch.no_grad():
        expected = theirs(audio.to(dtype), attention_mask=mask.long()).logits
        outputs = ours(audio=audio.to(dtype), audio_mask=mask)

    assert outputs["mask"].sum(1).tolist() == FRAMES
    close(outputs["logits"][outputs["mask"]], expected[outputs["mask"]])


def test_padding_need_not_count_in_the_group_norm(
    hf: Any, imported: Callable[..., Any], tmp_path: Any, close: Close
) -> None:
    """With `count_padding` of 0, a row has the logits that transformers gives it alone."""
    theirs = theirs_of(hf, "base")
    imported(theirs)
    made = weft.import_hf(tmp_path / "theirs")
    sizes = {"d_features": 8, "d_model": 16, "heads": 2, "d_ff": 24, "layers": 2, "vocab": 20}
    spec = weft.load("wav2vec2", **sizes, position_kernel=8, position_groups=4, count_padding=0)
    ours = weft.build(spec).eval()
    ours.load_state_dict(made.build().state_dict())
    audio, mask = waveforms()
    extra = 200  # of a frame that is not complete
    audio[1, LENGTHS[1] : LENGTHS[1] + extra] = 0.5
    mask[1, LENGTHS[1] : LENGTHS[1] + extra] = True

    with torch.no_grad():
        logits = ours(audio=audio, audio_mask=mask)["logits"]
        for row, (length, frames) in enumerate(zip(LENGTHS, FRAMES, strict=True)):
            alone = audio[row : row + 1, : length + extra * (row == 1)]
            close(logits[row, :frames], theirs(alone).logits[0])
