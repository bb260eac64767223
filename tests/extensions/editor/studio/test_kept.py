"""Tests that what the studio keeps from keystroke to keystroke changes no answer."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from weft.extensions.editor.language.document import forget
from weft.extensions.editor.studio.files import opened
from weft.extensions.editor.studio.session import Session
from weft.graphs.checker import blocks
from weft.graphs.draw import positions
from weft.specs.json_tree import tree
from weft.specs.reader import SHIPPED

MODELS = sorted((SHIPPED / "models").glob("*.json"))
SOME = ("transformer-base", "moe-transformer", "gru-attention", "t5")
"""Attention, blocks in slots, recurrence, and shared weights."""


def _forget_everything() -> None:
    """Forget what was kept, as a new process has."""
    for cache in (blocks._place, blocks._names, positions._dot, tree):
        cache.cache_clear()
    forget()


def _answer(session: Session, text: str) -> str:
    """Return the answer to a text."""
    return json.dumps(session.look({"text": text}))


def _records(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects in a JSON value."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value:
        if isinstance(inner, dict | list):
            yield from _records(inner)


def _edited(text: str, chance: random.Random) -> str:
    """Return a text after one edit, as a person may make it: most are mistakes."""
    if chance.random() < 0.3:  # typing
        at = chance.randrange(len(text))
        if chance.random() < 0.5:
            return text[:at] + chance.choice('{}[]",: 7ax=') + text[at:]
        return text[:at] + text[at + chance.randrange(1, 4) :]
    try:
        value = json.loads(text)
    except ValueError:
        return text
    record = chance.choice([one for one in _records(value) if one])
    if chance.random() < 0.4 and isinstance(value.get("params"), dict) and value["params"]:
        record = value["params"]
    key = chance.choice([*record])
    match chance.randrange(6):
        case 0:
            del record[key]
        case 1:
            record[f"{key}_"] = record[key]
        case 2:
            record[f"{key}_"] = record.pop(key)
        case 3:
            texts = [one for each in _records(value) for one in each.values()]
            record[key] = chance.choice([one for one in texts if isinstance(one, str | int)])
        case _:
            number = isinstance(record[key], int | float)
            record[key] = record[key] * 2 if number else chance.choice([1, True, 1.0, "x", {}])
    return json.dumps(value, indent=1)


def _texts(text: str, count: int, chance: random.Random) -> list[str]:
    """Return the texts of a session: edits, of which most are undone after a while."""
    found = [text]
    for _ in range(count):
        found.append(_edited(found[-1], chance))
        if chance.random() < 0.5:
            found.append(found[chance.randrange(len(found) // 2)])
    return found


def _compare(path: Path, tmp_path: Path, count: int) -> None:
    """Compare the answers of one session with those of a new process for each text."""
    file = tmp_path / "mine.json"
    file.write_text(path.read_text())
    texts = _texts(path.read_text(), count, random.Random(path.stem))
    _forget_everything()
    session = Session(opened(str(file)))
    answers = [_answer(session, text) for text in texts]
    assert len({*answers}) > count / 3
    for text, answer in zip(texts, answers, strict=True):
        _forget_everything()
        assert answer == _answer(Session(opened(str(file))), text), text


@pytest.mark.integration
@pytest.mark.parametrize("name", SOME)
def test_answers_are_those_of_a_new_session(name: str, tmp_path: Path) -> None:
    """Nothing that an earlier text left behind may be seen in the answer to the next one."""
    _compare(SHIPPED / "models" / f"{name}.json", tmp_path, 12)


@pytest.mark.slow
@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_answers_are_those_of_a_new_session_for_every_model(path: Path, tmp_path: Path) -> None:
    """As above, with more edits."""
    _compare(path, tmp_path, 60)
