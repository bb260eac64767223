"""Formatted generated source: the same behavior, fewer arguments and shorter lines."""

from __future__ import annotations

import ast

from weft.extensions.interop.export.source_format import WIDTH, defaults_of, laid_out

CLASSES = """
class Path:
    def __init__(self, d, order, eps=1e-6, norm="layer_norm"): ...

class Sub(Path):
    def __init__(self, d, order="post", *, f, **path): ...
"""
EACH = "self.one(row, value_one=row, value_two=row, three=row) for row in rows_of_x"
LONG = ", ".join(f"value_{n}=value_{n}" for n in range(9))
SOURCE = f"""class Model:
    def __init__(self):
        self.a = Sub(d=4, order='post', eps=1e-06, norm='layer_norm', f=Path(d=4, order='post'))
        self.b = Sub(d=4, order='pre', eps=1e-05, norm='none', f=Path(d=4, order='post', eps=1e-6))
        self.c = [Sub(d=True, order='post', f=None) for _ in range(3)]

    def step(self, x):
        y = self.a.step({LONG})
        return {{"rows": [{EACH}]}}
"""


def classes() -> dict[str, ast.ClassDef]:
    """Return the class definitions used by the source."""
    return {one.name: one for one in ast.parse(CLASSES).body if isinstance(one, ast.ClassDef)}


def test_default_arguments_are_omitted() -> None:
    """Defaults are omitted, also those of a parent reached through **kwargs; `pre` stays."""
    defaults = defaults_of(classes())

    lines = laid_out(SOURCE, defaults).splitlines()

    assert defaults["Sub"] == {"order": "post", "eps": 1e-6, "norm": "layer_norm"}
    assert lines[2] == '        self.a = Sub(d=4, f=Path(d=4, order="post"))'
    assert lines[3].startswith('        self.b = Sub(d=4, order="pre", eps=1e-05, norm="none", f=')


def test_lines_are_not_too_long_and_mean_the_same() -> None:
    """Calls and comprehensions are broken at their last brackets."""
    text = laid_out(SOURCE, {})

    assert max(map(len, SOURCE.splitlines())) > WIDTH
    assert max(map(len, text.splitlines())) <= WIDTH
    assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(SOURCE))
