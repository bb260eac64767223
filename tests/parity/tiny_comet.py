"""Write a tiny random COMET model in the published format, and print its scores of rows as JSON.

It runs in an environment with unbabel-comet: `python tiny_comet.py FOLDER ROWS`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytorch_lightning
import torch
import yaml
from comet.models import RegressionMetric
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import XLMRobertaConfig, XLMRobertaTokenizerFast

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
PIECES = [*SPECIAL, *"▁abcdefghijklmnopqrstuvwxyz.,äöüß", "<mask>"]


def write_encoder(folder: Path) -> None:
    """Write a tokenizer of letters, and the configuration of an encoder of three layers."""
    scored = [(piece, -number / 10) for number, piece in enumerate(PIECES)]
    tokenizer = Tokenizer(models.Unigram(scored, unk_id=3))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    names = ("bos_token", "pad_token", "eos_token", "unk_token")
    special = dict(zip(names, SPECIAL, strict=True))
    XLMRobertaTokenizerFast(
        tokenizer_object=tokenizer,
        sep_token="</s>",
        cls_token="<s>",
        mask_token="<mask>",
        **special,
    ).save_pretrained(folder)
    XLMRobertaConfig(
        vocab_size=len(PIECES),
        hidden_size=16,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=66,
        type_vocab_size=1,
        pad_token_id=1,
    ).save_pretrained(folder)


def main(folder: Path, rows: list[dict[str, str]]) -> None:
    """Write the model, and print its scores as unbabel-comet predicts them."""
    write_encoder(folder / "encoder")
    settings = {
        "pretrained_model": str(folder / "encoder"),
        "layer_transformation": "sparsemax",
        "layer_norm": False,
        "hidden_sizes": [24, 8],
    }
    torch.manual_seed(0)
    model = RegressionMetric(**settings, load_pretrained_weights=False, local_files_only=True)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    trainer = pytorch_lightning.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    trainer.strategy.connect(model)
    trainer.save_checkpoint(folder / "checkpoints" / "model.ckpt", weights_only=True)
    settings["class_identifier"] = "regression_metric"
    (folder / "hparams.yaml").write_text(yaml.dump(settings))
    options = {"batch_size": 2, "gpus": 0, "progress_bar": False, "num_workers": 1}
    sys.stdout.write(json.dumps(model.eval().predict(rows, **options).scores) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
