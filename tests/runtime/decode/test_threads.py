"""Small steps run on one thread, and torch has as many threads afterwards as before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import weft
from torch import nn
from weft.runtime.decode import threads
from weft.runtime.decode.decode import Request, SpecialTokens, decode_ids
from weft.runtime.decode.settings import BeamSearch
from weft.runtime.decode.threads import threads_for


@pytest.fixture(autouse=True)
def _three() -> Iterator[None]:
    """Give torch three threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("rows", "number"), [(1, 1), (4, 1), (5, 3)])
def test_the_work_of_a_step_is_rows_times_weights(
    rows: int, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two models of 6 weights: 48 multiplications for 4 rows, 60 for 5."""
    monkeypatch.setattr(threads, "SMALL", 48)
    models = [nn.Linear(2, 3, bias=False) for _ in range(2)]

    with threads_for(models, rows):
        assert torch.get_num_threads() == number
    assert torch.get_num_threads() == 3


def test_the_number_of_threads_comes_back_after_an_error() -> None:
    """Also the next context may change it again."""
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), threads_for([nn.Linear(2, 3)], 1):
            torch.get_num_threads() / 0
        assert torch.get_num_threads() == 3


def test_a_context_beside_another_changes_nothing() -> None:
    """Otherwise the one that ends last would set what the other one had chosen."""
    model = [nn.Linear(2, 3)]
    first, second = threads_for(model, 1), threads_for(model, 1)
    first.__enter__()
    torch.set_num_threads(2)  # as another thread of the process has its own number
    second.__enter__()
    assert torch.get_num_threads() == 2
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    assert torch.get_num_threads() == 3


def test_a_sentence_of_a_tiny_model_is_decoded_on_one_thread() -> None:
    """Each step asks what was cancelled."""
    model: Any = weft.build(weft.load("transformer-tiny", vocab=11, layers=1)).eval()
    numbers: list[int] = []

    def cancelled() -> set[int]:
        numbers.append(torch.get_num_threads())
        return set()

    search = BeamSearch(max_length=3)
    decode_ids([model], [Request([5, 1])], SpecialTokens(3, 1, 0), search, cancelled=cancelled)

    assert set(numbers) == {1}
    assert torch.get_num_threads() == 3
