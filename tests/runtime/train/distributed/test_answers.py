"""Answers that processes exchange arrive as they were sent."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from weft.runtime.train.distributed.answers import decoded, encoded


@dataclass(frozen=True)
class Branch:
    """A record with parts, as a parse has."""

    label: str
    children: tuple[Any, ...] = ()


@pytest.mark.parametrize(
    "answer",
    [
        None,
        "a text",
        0.1 + 0.2,
        ["tag", "tag"],
        ("a", ["b", ("c",)]),
        {"class": 1, 2: ("pair", "of")},
        Branch("S", (Branch("NP"), "word")),
    ],
)
def test_an_answer_arrives_as_it_was_sent(answer: Any) -> None:
    """Also its types: a list stays a list and a tuple a tuple, inside of a record too."""
    arrived = decoded(json.loads(json.dumps(encoded([answer]))))

    assert arrived == [answer]
    assert repr(arrived) == repr([answer])


def test_an_array_arrives_with_its_dtype() -> None:
    """A number of it becomes a number of Python."""
    values = np.array([[1.5, -2.0]], dtype=np.float32)

    arrived = decoded(json.loads(json.dumps(encoded([values, values[0, 0]]))))

    assert arrived[0].dtype == np.float32
    assert arrived[0].tolist() == [[1.5, -2.0]]
    assert arrived[1] == 1.5


def test_what_cannot_be_sent_is_an_error() -> None:
    """An answer of an unknown type would arrive as something else."""
    with pytest.raises(TypeError, match="answers of the type 'object' cannot be sent"):
        encoded([object()])


@pytest.mark.parametrize("name", ["sys", "weft.specs.findings"])
def test_a_record_of_no_dataclass_is_refused(name: str) -> None:
    """Data name a class, and only a record is made of it."""
    with pytest.raises((TypeError, AttributeError)):
        decoded({"$record": [name, "InputError", {}]})
