"""Tests of the layout of JSON texts."""

from __future__ import annotations

import json

from weft.specs.layout import laid_out
from weft.specs.reader import SHIPPED, read_json

TEXT = (SHIPPED / "models" / "transformer-base.json").read_text()


def test_formatting_keeps_comments_values_and_its_own_result() -> None:
    """Numbers are kept as they are written."""
    text = '// top\n{"a":1e5, // one\n "b" : [1,2, /* two */ 3],\n\n\n'
    text += ' "c": {"d":{} ,"e":[]}\n // last\n}'
    made = laid_out(text)
    assert made == (
        '// top\n{\n  "a": 1e5,  // one\n  "b": [\n    1,\n    2,  /* two */\n    3\n  ],\n\n'
        '  "c": {"d": {}, "e": []}\n  // last\n}\n'
    )
    assert laid_out(made) == made
    assert read_json(laid_out(TEXT), "") == json.loads(TEXT)
