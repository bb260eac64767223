"""Shrinking of an ejected file: what is removed, and what may not be."""

from __future__ import annotations

from typing import Any

import pytest
from weft.runtime.export.eject.shrink import shrunk

FILE = '''import math
import re
from torch import nn


# How to round.
MODES = ("up", "down")
"""Both ways."""


def chosen(x):
    return "down" if x > 1 else "up"


def slow(x, mode, *, note=None):
    """Round x."""
    kind = chosen(x)
    if kind == "up":
        return re.sub("a", mode, x)
    elif note is not None and mode in MODES:
        return note
    # What is used.
    return math.floor(x)


class Model(nn.Module):
    """A model.

    Args:
        nothing: at all.
    """

    knob: str = "off"
    """Never assigned."""

    def forward(self, x, way):
        """Compute.

        More words.

        Source: a paper.
        """
        if self.knob == "off" and x is not None:
            return slow(x, mode="down")
        return self._part(x) + slow(x, way, note=1)

    def _part(self, x):
        return f"{x}"

    def unused(self):
        return MODES


def start():
    return Model()
'''


def test_branches_that_no_call_reaches_are_removed() -> None:
    """With their functions, params, imports, comments and docstrings; no line of code is left."""
    made = shrunk(FILE.replace(" + slow(x, way, note=1)", ""), ["start"], {"chosen": '"down"'})

    assert made == (
        'import math\n\nfrom torch import nn\n\n\ndef slow(x):\n    """Round x."""\n'
        "    # What is used.\n    return math.floor(x)\n\n\n"
        'class Model(nn.Module):\n    """A model."""\n\n'
        '    def forward(self, x, way):\n        """Compute.\n\n        Source: a paper.\n'
        '        """\n'
        "        if x is not None:\n            return slow(x)\n        return self._part(x)\n\n"
        '    def _part(self, x):\n        return f"{x}"\n\n\ndef start():\n    return Model()\n'
    ).replace("import math\n\nfrom", "import math\nfrom")


def test_a_param_with_two_values_stays() -> None:
    """As does every branch that depends on it."""
    made = shrunk(FILE, ["start"], {"chosen": '"down"'})

    assert "def slow(x, mode, *, note=None):" in made
    assert "if note is not None and mode in MODES:" in made
    assert "import re" not in made


KEPT: dict[str, str] = {
    "an attribute that is assigned": (
        "class A:\n    knob = 1\n\n    def forward(self):\n"
        "        return 1 if self.knob == 1 else 3\n"
        "\n\ndef start():\n    a = A()\n    a.knob = 5\n    return a.forward()\n"
    ),
    "an attribute that may be assigned by any name": (
        "class A:\n    knob = 1\n\n    def forward(self):\n"
        "        return 1 if self.knob == 1 else 3\n"
        "\n\ndef start():\n    a = A()\n    for name in ['k' + 'nob']:\n"
        "        setattr(a, name, 5)\n    return a.forward()\n"
    ),
    "a method that is called by its name": (
        "class A:\n    def _b(self, x=1):\n        return x\n\n    def forward(self):\n"
        "        return getattr(self, '_b')(7) + self._b()\n\n\ndef start():\n"
        "    return A().forward()\n"
    ),
    "a param that is assigned": (
        "def f(x=None):\n    if x is None:\n        x = 3\n    return x is None, x\n\n\n"
        "def start():\n    return f()\n"
    ),
    "a function that is passed on": (
        "def f(x, scale=1):\n    return x * scale\n\n\n"
        "def twice(g):\n    return g(2, 5) + f(1)\n\n\n"
        "def start():\n    return twice(f)\n"
    ),
    "a local name like that of a function": (
        "def f(x, scale=1):\n    return x * scale\n\n\n"
        "def g():\n    f = max\n    return f(4, 9)\n\n\n"
        "def start():\n    return f(3) + g()\n"
    ),
    "arguments in a dictionary": (
        "def f(x, scale=None):\n    return x if scale is None else x * scale\n\n\n"
        "def start():\n    more = {'scale': 4}\n    return f(3, **more)\n"
    ),
    "the value of `and`, which is not only tested": (
        "def f(x, y=True):\n    return x and y\n\n\ndef start():\n    return f('a')\n"
    ),
    "a call whose result is known and whose argument has an effect": (
        "SEEN = []\n\n\ndef f(x):\n    return 1\n\n\ndef start():\n    f(SEEN.append(2))\n"
        "    return SEEN\n"
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_the_result_does_not_change(name: str) -> None:
    """For code that looks as if it could be folded."""
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}
    exec(KEPT[name], before)
    exec(shrunk(KEPT[name], ["start"], {}), after)

    assert after["start"]() == before["start"]()
