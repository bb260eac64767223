"""Weft: compose sequence models from typed blocks.

    spec = weft.load("transformer-base", layers=4)   # a spec, with a param changed
    weft.check(spec)                                  # a list of all errors
    weft.draw(spec, "model.svg")                      # a picture; in notebooks, weft.draw(spec)
    weft.diff("transformer-base", spec).render()      # the changes, as text
    model = weft.build(spec)                          # a torch.nn.Module
    model(**weft.example_inputs(spec))                # a dict of outputs
    weft.prove(spec)                                  # decoding, padding, gradients: no fault?
    model = weft.build(weft.unpad(spec))              # trains on non-padding tokens only
    weft.compile(model)                               # torch.compile per template
    result = weft.train("multi30k-en-de", out="outputs/m30k")
    weft.open(result.averaged).translate(["A dog runs."])
    weft.Study("study-demo").plan().rows              # an ablation: every row checked and costed
    weft.import_hf("bert-base-uncased", "bert").save("outputs/bert")
    weft.export(result.averaged, "ctranslate2", "outputs/m30k/ct2", quantization="int8")

Each name is imported from its own module when it is first used (PEP 562): `load`, `check`, `draw`
and `diff` never import torch.  `__init__.pyi` has every name, for type checkers and for this file;
`docs/api.md` describes them.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path


def homes_in(file: str) -> dict[str, str]:
    """Return the module of each name in the stub of a file."""
    homes, module = {}, ""
    words = Path(file).with_suffix(".pyi").read_text(encoding="utf-8").split()
    for word, following in pairwise(words):
        if word == "from":
            module = following
        elif word == "as":
            homes[following.rstrip(",")] = module
    return homes


_HOMES = homes_in(__file__)
__all__ = sorted((*_HOMES, "__version__"))  # noqa: PLE0605 - a list


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    import importlib

    if name == "__version__":
        from importlib.metadata import version

        value: object = version("weft")
    elif name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name], __name__), name)
    else:
        msg = f"module 'weft' has no attribute '{name}'"
        raise AttributeError(msg)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names, whether or not they have been used."""
    return sorted({*globals(), *__all__})
