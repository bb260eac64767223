"""The text of `modeling_NAME.py` and `configuration_NAME.py`."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass

from .....graphs.ir.python_names import argument
from .....plugin import Graph
from .....runtime.codegen.forward import variables
from .....runtime.codegen.module import Program, lower
from ..eject import GENERATED, ROOT, bundle, head_text
from ..source_bundle import SourceSymbol
from .interface import Interface
from .templates import CONFIGURATION, HEADS, TIE

LONGEST = 512
"""Positions for which a decoding state is planned, if the model has no limit."""
_WRAPPER = "weft_transformers"
"""Name of the module that the text of the wrapper stands for."""
_CLASSES = {"": "Model", "Seq2SeqLM": "ForConditionalGeneration"}
"""Head to the end of the name of its class, where it is not `ForHEAD`."""
_USE = "Requires torch and transformers; README.md shows the use."
_DECLARED = {
    "CausalLM": ("attention_mask",),
    "Seq2SeqLM": ("decoder_input_ids", "decoder_attention_mask"),
}
"""Head to the arguments that its text declares for every model."""
_Memory = dict[str, str]
"""Name of each value that decoding reads, to its field in what the encoder returns."""
_OUTPUTS = {
    "CausalLM": "CausalLMOutputWithPast",
    "Seq2SeqLM": "Seq2SeqLMOutput",
    "MaskedLM": "MaskedLMOutput",
    "SequenceClassification": "SequenceClassifierOutput",
    "TokenClassification": "TokenClassifierOutput",
}
"""Head to the class of what `forward` returns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Modeling:
    """The two files, and the names that `config.json` needs."""

    stem: str
    """What follows `modeling_` and `configuration_` in the names of the files."""
    root: str
    """Class of the ejected model."""
    config: str
    """Class of the configuration."""
    model: str
    """Class of the model for transformers."""
    text: str
    """Content of the file of the model."""
    configuration: str
    """Content of the file of the configuration."""
    core: str
    """The classes of the model alone, which need torch only."""

    @property
    def model_type(self) -> str:
        """The type in `config.json`, which no architecture of the library has."""
        return f"weft_{self.stem}"

    def texts(self) -> dict[str, str]:
        """Return the content of each file by its name."""
        return {
            f"modeling_{self.stem}.py": self.text,
            f"configuration_{self.stem}.py": self.configuration,
        }


def modeling(
    graph: Graph, interface: Interface, *, limit: int | None, auxiliary: float
) -> Modeling:
    """Return the files of a model.

    Args:
        graph: its graph, without LoRA.
        interface: how transformers calls it.
        limit: the most positions of a sequence; None if there is no limit.
        auxiliary: weight of the auxiliary losses.

    Raises:
        InputError: the source of a block is not available.
    """
    program = lower(graph)
    stem = re.sub(r"\W+", "_", graph.name.lower(), flags=re.ASCII).strip("_") or "model"
    source, memory = program.source, _Memory()
    if interface.head == "Seq2SeqLM":
        source, memory = with_encode(program)
    doc = (ast.get_docstring(ast.parse(program.source)) or "").partition("\n")[0].partition(":")[0]
    fields = {
        "root": program.root,
        "config": f"{program.root}Config",
        "model": program.root + _CLASSES.get(interface.head, f"For{interface.head}"),
        "encoder": f"{program.root}Encoder",
        "encoded": f"{program.root}{'Encoder' if interface.generates else ''}Output",
        "doc": doc,
        "stem": stem,
        "model_type": f"weft_{stem}",
        "limit": str(limit or LONGEST),
        "auxiliary": "".join(
            f'\n            loss = loss + {auxiliary!r} * outputs["{name}"].sum()'
            for name in interface.auxiliary
        ),
    }
    fields |= _fields(graph, interface, memory)
    wrapper = HEADS[interface.head].substitute(fields).replace("$ROOT", ROOT)
    gatherer, titles = bundle(program, source, symbols=(), more={_WRAPPER: wrapper})
    core, _ = bundle(program, source, symbols=())
    titles[_WRAPPER] = "The interface of transformers."
    names = gatherer.names()
    return Modeling(
        stem=stem,
        root=names[SourceSymbol(GENERATED, program.root)],
        config=fields["config"],
        model=names[SourceSymbol(_WRAPPER, fields["model"])],
        text=head_text(graph, program, _USE) + gatherer.render(titles),
        configuration=CONFIGURATION.substitute(fields),
        core=core.render(titles),
    )


def _fields(graph: Graph, interface: Interface, memory: _Memory) -> dict[str, str]:
    """Return the parts of the text about inputs and outputs."""
    arguments, moving = interface.arguments, interface.moving
    values = {port: _value(port, role, interface) for port, role in arguments.items()}
    fixed = [port for port in arguments if port not in moving]
    ids = next((n for n in arguments if n in moving and graph.inputs[n].kind == "ids"), "")
    masks = [port for port in moving if port != ids]
    steps = [f"{argument(ids)}=ids"]
    steps += [f"{argument(port)}=torch.ones_like(ids, dtype=torch.bool)" for port in masks]
    ties = {f"model.{path}": f"model.{group[0]}" for group in graph.ties for path in group[1:]}
    return {
        "main": arguments[interface.main],
        "ties": json.dumps(ties),
        "tie": TIE if ties else "",
        "signature": "".join(
            f"        {role}: Tensor | None = None,\n"
            for role in arguments.values()
            if role not in _DECLARED.get(interface.head, ())
        ),
        "call": ", ".join(f"{argument(port)}={value}" for port, value in values.items()),
        "encode": ", ".join(f"{argument(port)}={values[port]}" for port in fixed),
        "passed": ", ".join(f"{arguments[port]}={arguments[port]}" for port in fixed),
        "step": ", ".join(steps),
        "mask": "".join(f"{argument(port)}=rolled(mask, padding), " for port in masks),
        "ids": argument(ids),
        "memory_fields": "".join(f"    {name}: Tensor | None = None\n" for name in memory.values()),
        "memory_returned": ", ".join(f'{name}=values["{var}"]' for var, name in memory.items()),
        "memory_rows": ", ".join(
            f"{var}=encoder_outputs.{name}[rows]" for var, name in memory.items()
        ),
        "output": _OUTPUTS.get(interface.head, ""),
        "fields": "".join(
            f"    {name}: Tensor | None = None\n" for name in interface.outputs.values()
        ),
        "returned": ", ".join(
            f'{name}=outputs["{port}"]' for port, name in interface.outputs.items()
        ),
    }


def _value(port: str, role: str, interface: Interface) -> str:
    """Return what the model gets for an argument, which may be None if it has a default."""
    of_output = role.startswith("decoder_")
    main = "decoder_input_ids" if of_output else interface.arguments[interface.main]
    if port in interface.masks:
        return f"mask_of({role}, {main})"
    if role == "token_type_ids":
        return f"torch.zeros_like({main}) if {role} is None else {role}"
    return role


def with_encode(program: Program) -> tuple[str, _Memory]:
    """Return the source whose root class computes what does not move in a method `encode`.

    `begin` then takes these values instead of the inputs.  If one of them has no row for each of
    the batch, `encode` returns the inputs.
    """
    lines = program.source.splitlines()
    tree = ast.parse(program.source)
    root = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == program.root)
    begin = next(n for n in root.body if isinstance(n, ast.FunctionDef) and n.name == "begin")
    inputs = [word.arg for word in begin.args.kwonlyargs]
    fixed, later = list(begin.body), list[ast.stmt]()
    for index, statement in enumerate(begin.body):
        if _names(statement) & {"capacity", "state"} or isinstance(statement, ast.Return):
            fixed, later = begin.body[:index], begin.body[index:]
            break
    read = {name for statement in later for name in _names(statement)} - {*_targets(later)}
    computed = [name for name in dict.fromkeys(_targets(fixed)) if name in read]
    values = {local: value for value, local in variables(program.graph.root).items()}
    batch = {axis for axis, kind in program.graph.spec.axes.items() if kind == "batch"}

    def has_rows(name: str) -> bool:
        value = values.get(name)
        axes = program.graph.root.type_of(value).axes if value is not None else ()
        return bool(axes) and axes[0] in batch

    if not all(map(has_rows, computed)):
        fixed, later, computed = [], list(begin.body), []
        read = {name for statement in later for name in _names(statement)}
    names = [*computed, *(name for name in inputs if name in read)]
    fields = ["last_hidden_state", *(_field(name) for name in names[1:])]
    start, end = begin.lineno - 1, begin.end_lineno or begin.lineno
    split = later[0].lineno - 1
    keys = ", ".join(f'"{name}": {name}' for name in names)
    encode = [
        f"    def encode(self, *, {', '.join(inputs)}):",
        '        """Return the values that decoding reads."""',
        *lines[start + _head_lines(begin) : split],
        f"        return {{{keys}}}",
        "",
    ]
    method = [f"    def begin(self, capacity, *, {', '.join(names)}):", *lines[split:end]]
    text = "\n".join([*lines[:start], *encode, *method, *lines[end:]]) + "\n"
    return text, dict(zip(names, fields, strict=True))


def _head_lines(function: ast.FunctionDef) -> int:
    """Return the number of lines before the first statement of a function."""
    return function.body[0].lineno - function.lineno


def _names(node: ast.AST) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def _targets(statements: list[ast.stmt]) -> list[str]:
    return [
        inner.id
        for statement in statements
        for inner in ast.walk(statement)
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)
    ]


def _field(name: str) -> str:
    return f"{name}_" if name in dir(dict) or name == "last_hidden_state" else name
