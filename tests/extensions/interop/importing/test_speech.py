"""An imported model of speech is trained on sounds, and writes the words of files."""

from __future__ import annotations

import json
import wave
from pathlib import Path

import numpy as np
import pytest
from weft.extensions.interop.export.huggingface.export import export_huggingface
from weft.runtime.checkpoint.checkpoint import open_checkpoint
from weft.runtime.cli.main import main

from ..small_exports import exportable

RATE = 16_000
TONES = {"one": 300, "two": 900}
TEXTS = ["one", "two", "one two", "two one"]
KEYS = {
    "d_model": "hidden_size",
    "heads": "num_attention_heads",
    "d_ff": "intermediate_size",
    "layers": "num_hidden_layers",
    "position_kernel": "num_conv_pos_embeddings",
    "position_groups": "num_conv_pos_embedding_groups",
}
"""Param of the spec to its key in `config.json`."""


def write_sounds(folder: Path) -> None:
    """Write a manifest of sounds in which each word is a tone of a fifth of a second."""
    time = np.arange(RATE // 5) / RATE
    for row, text in enumerate(TEXTS):
        tones = [np.sin(2 * np.pi * TONES[word] * time) for word in text.split()]
        with wave.open(str(folder / f"{row}.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(RATE)
            file.writeframes((np.concatenate(tones) * 12_000).astype("<i2").tobytes())
    lines = [f"{row}.wav\t{text}" for row, text in enumerate(TEXTS)]
    (folder / "sounds.tsv").write_text("\n".join(["audio\ttext", *lines]) + "\n")


@pytest.mark.slow
def test_wav2vec2_is_fine_tuned_and_writes_the_words_of_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its frames are every 320 samples, and 80 further ones end the last; its head is drawn."""
    pytest.importorskip("soundfile")
    export_huggingface(exportable("wav2vec2", "wav2vec2"), tmp_path / "theirs", table="wav2vec2")
    assert main(["import", "hf", str(tmp_path / "theirs"), "--out", str(tmp_path / "ours")]) == 0
    config = json.loads((tmp_path / "theirs" / "config.json").read_text())
    sizes = {param: config[key] for param, key in KEYS.items()}
    write_sounds(tmp_path)
    manifest = {"audio": {"files": ["sounds.tsv"]}}
    text = {"type": "text", "tokenizer": "words", "end": False}
    run = {
        "format": 1,
        "name": "speech",
        "objective": "ctc",
        "params": {
            "model": {"spec": "wav2vec2", "params": {"vocab": "=vocab", **sizes}},
            "hop": 320,
            "overlap": 80,
        },
        "start": {"checkpoint": str(tmp_path / "ours"), "vocabulary": "by_piece"},
        "data": {
            "root": str(tmp_path),
            "columns": {"audio": {"type": "audio"}, "text": text},
            "train": manifest,
            "valid": manifest,
        },
        "tokenizers": {"words": {"type": "symbols"}},
        "batch": {"tokens": 60_000},
        "updates": 2,
        "schedule": {"peak": 0.001},
        "precision": "float32",
        "compile": "eager",
        "threads": 1,
        "predict": {"type": "ctc", "mask": "mask"},
        "answers": "text",
        "evaluate": {"every": 2, "metrics": ["wer"]},
    }
    (tmp_path / "run.json").write_text(json.dumps(run))
    rows = [{"audio": str(tmp_path / f"{row}.wav")} for row in range(len(TEXTS))]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    assert main(["train", str(tmp_path / "run.json"), "--out", str(tmp_path / "out")]) == 0
    log = capsys.readouterr()
    words = ["predict", str(tmp_path / "out" / "averaged"), str(tmp_path / "rows.jsonl")]
    assert main(words) == 0

    trained, ours = (open_checkpoint(tmp_path / name) for name in ("out/averaged", "ours"))
    carried = sum(w.numel() for path, w in ours.weights.items() if not path.startswith("head."))
    assert f"{carried:,} of" in log.out + log.err
    assert trained.weights["head.weight"].shape == (6, 32)
    answers = capsys.readouterr().out.splitlines()
    assert len(answers) == len(TEXTS)
    assert all(set(json.loads(answer).split()) <= {"one", "two"} for answer in answers)
