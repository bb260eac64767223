"""A folder with a tiny model of another library, and its table."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from .tagger import CONFIG, SPEC, TABLE, their_tensors


@pytest.fixture
def tagger(tmp_path: Path) -> Callable[..., tuple[Path, Path]]:
    """Return a function that writes folder and table; changes replace keys, None removes them."""

    def write(
        config: Mapping[str, Any] | None = None,
        table: Mapping[str, Any] | None = None,
        tensors: Mapping[str, torch.Tensor | None] | None = None,
    ) -> tuple[Path, Path]:
        folder = tmp_path / "theirs"
        folder.mkdir(exist_ok=True)
        merged = {**their_tensors(), **(tensors or {})}
        save_file({k: v for k, v in merged.items() if v is not None}, folder / "model.safetensors")
        settings = {k: v for k, v in {**CONFIG, **(config or {})}.items() if v != "(gone)"}
        (folder / "config.json").write_text(json.dumps(settings))
        (tmp_path / "tagger.json").write_text(json.dumps(SPEC))
        path = tmp_path / "table.json"
        path.write_text(json.dumps({**TABLE, **(table or {})}))
        return folder, path

    return write
