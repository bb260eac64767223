"""Opening the checkpoints of a command."""

from __future__ import annotations

import os

import pytest
from weft.runtime.cli.common.models import KERNELS, open_checkpoints
from weft.specs.findings import InputError

CACHES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")


def test_the_commands_keep_few_compiled_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes half a megabyte; what the user has set stays."""
    for name in CACHES:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv(CACHES[1], "7")

    with pytest.raises(InputError):
        open_checkpoints("no-such-folder", None, {})

    assert [os.environ[name] for name in CACHES] == [KERNELS, "7"]
