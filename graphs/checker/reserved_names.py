"""Reserved names: words that a spec may not use as names.

Names of nodes become attributes of modules, and names of ports become arguments of generated
functions, so neither may be a word that is already in use there.
"""

from __future__ import annotations

import keyword

from ...specs.findings import pointer
from ...specs.form import BUDGETS, Spec
from .records import Findings

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
"""Public attributes of `torch.nn.Module`, listed so that the check does not need torch."""
OWN_WORDS = frozenset({"begin", "read_prompt", "step", "tie", "training", "weights"})
"""Additional attributes of generated modules."""
ARGUMENT_WORDS = frozenset(
    {"self", "capacity", "state", "position", "layer", "layer_state", "nn", "torch", "zip", "range"}
)
"""Variables of generated functions."""
NODE_WORDS = MODULE_WORDS | OWN_WORDS | {"zip"}
"""Words that may not be the name of a node."""
_CONSTANTS = frozenset({"none", "true", "false"})
"""Names whose class would be named like a constant of Python."""


def check_names(spec: Spec, findings: Findings) -> None:
    """Report every name that generated code could not use."""
    scopes = [("", spec.nodes, spec.inputs, spec.outputs)]
    for name, template in spec.blocks.items():
        at = pointer("blocks", name)
        scopes.append((at, template.nodes, template.inputs, template.outputs))
        if name.lower() in _CONSTANTS:
            _refuse(findings, "template", name, at)
    if spec.name.lower() in _CONSTANTS:
        _refuse(findings, "spec", spec.name, "/name")
    for at, nodes, inputs, outputs in scopes:
        for name in nodes:
            if keyword.iskeyword(name) or name in NODE_WORDS:
                _refuse(findings, "node", name, at + pointer("nodes", name))
        for side, ports in (("inputs", inputs), ("outputs", outputs)):
            for name in ports:
                if keyword.iskeyword(name) or name in ARGUMENT_WORDS:
                    _refuse(findings, "port", name, at + pointer(side, name))

    for name in spec.params.keys() & BUDGETS.keys():
        _refuse(findings, "param", name, pointer("params", name))


def _refuse(findings: Findings, what: str, name: str, at: str) -> None:
    findings.report(
        code="N09",
        at=at,
        problem=f"{what} '{name}' has a reserved name",
        help=f"give it another name, such as '{name}_{what}'",
    )
