"""Fixtures for tests of blocks: a check that one compiled graph is valid for every size."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn


@pytest.fixture
def compiles_once() -> Iterator[Callable[[nn.Module], None]]:
    """Return a check of self-attention that resets torch.compile before and after."""
    from torch._dynamo.testing import CompileCounter  # noqa: PLC0415 - two seconds to import

    def check(block: nn.Module) -> None:
        counter = CompileCounter()
        compiled = torch.compile(block, backend=counter, fullgraph=True, dynamic=True)

        for rows, length in ((2, 6), (3, 7), (4, 11)):
            x = torch.randn(rows, length, 8, dtype=torch.float64)
            mask = torch.rand(rows, length) > 0.3
            torch.testing.assert_close(compiled(x, mask=mask), block(x, mask=mask))

        assert counter.frame_count == 1

    torch.compiler.reset()
    yield check
    torch.compiler.reset()
