"""Names: how generated code writes names of a spec that Python, torch or the code itself uses."""

from __future__ import annotations

import keyword

ARGUMENTS = frozenset(
    {"self", "capacity", "state", "position", "layer", "layer_state", "nn", "torch", "zip", "range"}
)
"""Words that may not be an input of a spec: other arguments and variables of its model."""


def is_reserved(name: str) -> bool:
    """Return whether a name cannot be an argument of a generated function."""
    return keyword.iskeyword(name) or name in ARGUMENTS


def argument(port: str) -> str:
    """Return the argument for a port: its name, with an underscore if that is reserved.

    >>> [argument(name) for name in ("mask", "state", "class", "class_")]
    ['mask', 'state_', 'class_', 'class__']
    """
    return f"{port}_" if is_reserved(port.rstrip("_")) else port


MODULE_WORDS = frozenset(
    """
    T_destination add_module apply bfloat16 buffers call_super_init children compile cpu cuda
    double dump_patches eval extra_repr float forward get_buffer get_extra_state get_parameter
    get_submodule half ipu load_state_dict modules mtia named_buffers named_children
    named_modules named_parameters parameters register_backward_hook register_buffer
    register_forward_hook register_forward_pre_hook register_full_backward_hook
    register_full_backward_pre_hook register_load_state_dict_post_hook
    register_load_state_dict_pre_hook register_module register_parameter
    register_state_dict_post_hook register_state_dict_pre_hook requires_grad_ set_extra_state
    set_submodule share_memory state_dict to to_empty train type xpu zero_grad
    """.split()  # noqa: SIM905 - one word per line would fill the page
)
"""Public attributes of `torch.nn.Module`, listed so that generated code does not depend on its
version."""
OWN_WORDS = frozenset({"begin", "copies", "places", "read_prompt", "step", "tie", "weights"})
"""Additional attributes of generated modules."""


def child(name: str) -> str:
    """Return how generated code reads a module of `self`: as an attribute, if that is free.

    >>> child("encoder"), child("half")
    ('self.encoder', 'self._modules["half"]')
    """
    return f"self{_child(name)}"


def member(path: str) -> str:
    """Return the expression for a module below `self`: `encoder.0.f` is `self.encoder[0].f`."""
    return "self" + "".join(f"[{n}]" if n.isdigit() else _child(n) for n in path.split("."))


def weight(path: str) -> str:
    """Return the expression for a parameter below `self`."""
    module, _, name = path.rpartition(".")
    return f"{member(module)}.{name}"


def _child(name: str) -> str:
    free = name not in MODULE_WORDS | OWN_WORDS and not keyword.iskeyword(name)
    return f".{name}" if free else f'._modules["{name}"]'


def class_name(name: str) -> str:
    """Return the class name for a name in a spec: `encoder_layer` gives `EncoderLayer`."""
    words = "".join(c if c.isalnum() and c.isascii() else " " for c in name).split()
    joined = "".join(word[:1].upper() + word[1:] for word in words)
    joined = joined if joined[:1].isalpha() else f"Model{joined}"
    return f"{joined}_" if keyword.iskeyword(joined) else joined
