"""Schema: the JSON Schema of a spec file, with which an editor completes and underlines.

It is made of the forms in `specs/form.py` and of the registered blocks, so no key
stands here that is not written there.  It knows form, params and ports; that wires
fit and axes agree only the checker can say.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import json
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from ..specs.form import FORMAT, RepeatNode, Spec, Step, Template, Use, UseNode
from ..specs.reader import FOR_EDITORS
from .ir.block_type import BlockType, Registry, Signature
from .ir.value_type import KINDS, SIZED

DRAFT = "https://json-schema.org/draft/2020-12/schema"
"""The version of JSON Schema that is written."""
EXPRESSION = {"type": "string", "pattern": "^="}
"""What may stand in place of any param's value."""

Schema = dict[str, Any]


def schema(registry: Registry) -> Schema:
    """Return the JSON Schema of a spec file: a whole spec, or the child of one.

    Args:
        registry: the blocks that a spec may name.
    """
    whole = _tidied(Spec.model_json_schema())
    found = {**whole.pop("$defs"), **_shared(registry)}
    for form in (Spec, Template, UseNode, RepeatNode, Step):
        _describe(whole if form is Spec else found[form.__name__], form)
    _describe(found["Use"], Use)
    for record in (whole, found["Template"]):
        _each(record["properties"]["inputs"], {"$ref": "#/$defs/type"})
    _each(whole["properties"]["params"], {"$ref": "#/$defs/value"})
    _each(whole["properties"]["blocks"], {"$ref": "#/$defs/block"})
    for name, ports in (("Use", False), ("UseNode", True)):
        found[name]["properties"]["use"] = _described({"$ref": "#/$defs/name"}, found[name], "use")
        found[name]["allOf"] = [{"$ref": f"#/$defs/{_key(b)}:use"} for b in registry] + [
            {"$ref": f"#/$defs/{_key(block)}:ports"} for block in registry if ports
        ]
    for block in registry:
        found |= _of_block(block)
    whole["properties"] = {FOR_EDITORS: {"type": "string"}, **whole["properties"]}
    found |= {"spec": whole, "child": _child(whole), "patch": _patch()}
    return {
        "$schema": DRAFT,
        "title": f"Weft spec, format {FORMAT}",
        "$defs": found,
        "type": "object",
        "if": {"required": ["extends"]},
        "then": {"$ref": "#/$defs/child"},
        "else": {"$ref": "#/$defs/spec"},
    }


def _shared(registry: Registry) -> Schema:
    """Return what several places refer to: a type, a block's name, a value, a node."""
    kinds = "|".join(f"{kind}:[^\\[\\]]+" if kind in SIZED else kind for kind in KINDS)
    names = {"enum": registry.keys(), "enumDescriptions": [block.doc for block in registry]}
    template = {"type": "string", "pattern": "^[A-Za-z][A-Za-z0-9_]{0,63}$"}
    choice = {
        "if": {"type": "object"},
        "then": {
            "properties": {"use": {"$ref": "#/$defs/name"}, "params": {"type": "object"}},
            "additionalProperties": False,
            "required": ["use"],
            "allOf": [
                _when(block, {"properties": {"params": {"$ref": f"#/$defs/{_key(block)}:params"}}})
                for block in registry
            ],
        },
    }
    repeats = {"anyOf": [{"required": ["repeat"]}, _block_without_use()]}
    node = {
        "if": repeats,
        "then": {"$ref": "#/$defs/RepeatNode"},
        "else": {"$ref": "#/$defs/UseNode"},
    }
    return {
        "type": {
            "type": "string",
            "pattern": rf"^\s*({kinds})\[[^\[\]]*\]\??\s*$",
            "description": "kind[axes]: " + "; ".join(f"{k}: {doc}" for k, doc in KINDS.items()),
        },
        "name": {"anyOf": [names, template, EXPRESSION]},
        "value": choice,
        "node": node,
        "block": {
            "if": {"required": ["spec"]},
            "then": _imported(),
            "else": {"$ref": "#/$defs/Template"},
        },
    }


def _imported() -> Schema:
    """Return the schema of a template that is a whole spec."""
    properties = {
        "spec": {"type": "string", "description": "The spec: a shipped one, or one beside."},
        "params": {"type": "object", "description": "Params of it that get other values."},
        "doc": {"type": "string"},
    }
    return {"properties": properties, "additionalProperties": False}


def _block_without_use() -> Schema:
    return {"required": ["block"], "not": {"required": ["use"]}}


def _key(block: BlockType) -> str:
    """Return a block's key as a part of a pointer."""
    return block.key.replace("~", "~0").replace("/", "~1")


def _when(block: BlockType, then: Schema) -> Schema:
    uses = {"properties": {"use": {"const": block.key}}, "required": ["use"]}
    return {"if": uses, "then": then}


def _of_block(block: BlockType) -> Schema:
    """Return a block's params, the rule for its uses, and the rule for its wires."""
    key = _key(block)
    params = _tidied(
        block.params.model_json_schema(ref_template=f"#/$defs/{key}:params/$defs/{{model}}")
    )
    required = params.pop("required", [])
    for name, value in params.get("properties", {}).items():
        said = {word: value.pop(word) for word in ("description", "default") if word in value}
        params["properties"][name] = {"anyOf": [value, EXPRESSION], **said}
    params["description"] = f"{block.doc} {block.source}"
    both = _signatures(block)
    slots = {slot.name: slot for signature in both for slot in signature.slots}
    use: Schema = {"properties": {"params": {"$ref": f"#/$defs/{key}:params"}}, "required": []}
    if required:
        use["properties"]["params"]["required"] = required
        use["required"].append("params")
    use["properties"]["fill"] = {
        "properties": {
            name: {"$ref": "#/$defs/Use", "description": f"{slot.input.type}: {slot.doc}"}
            for name, slot in slots.items()
        },
        "additionalProperties": False,
        "required": [*slots],
    }
    if slots:
        use["required"].append("fill")
    ports = {port.name: port for signature in both for port in signature.inputs}
    wires: Schema = {
        "properties": {
            name: {"type": "string", "description": f"{port.type}: {port.doc}"}
            for name, port in ports.items()
        }
    }
    if not slots:
        wires["additionalProperties"] = False
    return {
        f"{block.key}:params": params,
        f"{block.key}:use": _when(block, use),
        f"{block.key}:ports": _when(block, {"properties": {"in": wires}}),
    }


def _signatures(block: BlockType) -> list[Signature]:
    """Return a block's ports with every port wired, and with none."""
    params = block.params.model_validate(block.example)
    return [block.signature(params, frozenset(wired)) for wired in (block.example_inputs, ())]


def _child(whole: Schema) -> Schema:
    """Return the schema of a spec that extends another."""
    properties = whole["properties"]
    kept = {key: properties[key] for key in (FOR_EDITORS, "format", "name", "doc", "params")}
    extends = {"type": "string", "description": "The parent: a shipped spec, or one beside."}
    patch = {
        "type": "array",
        "items": {"$ref": "#/$defs/patch"},
        "description": "Changes of the parent; their order carries nothing.",
    }
    return {
        "type": "object",
        "description": "A model that is another one, changed.",
        "properties": {**kept, "extends": extends, "blocks": properties["blocks"], "patch": patch},
        "required": ["format", "extends", "name"],
        "additionalProperties": False,
    }


def _patch() -> Schema:
    """Return the schema of one patch: what it selects, and one action."""
    inserted = {
        "type": "object",
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": {"$ref": "#/$defs/node"},
        "description": "The new node, by its name; the value it takes is '@'.",
    }
    named = {"properties": {"use": {"$ref": "#/$defs/name"}}}
    texts = {"type": "array", "items": {"type": "string"}, "minItems": 1}
    actions = {
        "set": {
            "type": "object",
            "minProperties": 1,
            **named,
            "description": "Dotted keys to their values, such as 'params.heads'.",
        },
        "replace": {"type": "object", **named, "description": "What stands there instead."},
        "insert_before": inserted,
        "insert_after": inserted,
        "remove": {"anyOf": [{"const": True}, texts], "description": "All of it, or these keys."},
    }
    words = {
        "select": "Which nodes: a path with * and **, and [key=value].",
        "port": "The wire or output at which a node is inserted.",
        "output": "What an inserted node gives in place of what it takes.",
        "through": "The port whose value the readers of a removed node read instead.",
    }
    texts_of = {key: {"type": "string", "description": doc} for key, doc in words.items()}
    expect = {"type": "integer", "minimum": 1, "description": "How many there must be."}
    return {
        "type": "object",
        "properties": {**texts_of, "expect": expect, **actions},
        "required": ["select"],
        "oneOf": [{"required": [action]} for action in actions],
        "dependentSchemas": {
            "port": {"anyOf": [{"required": [key]} for key in ("insert_before", "insert_after")]},
            "output": {"anyOf": [{"required": [key]} for key in ("insert_before", "insert_after")]},
            "through": {"required": ["remove"]},
        },
        "additionalProperties": False,
    }


def _tidied(value: Any) -> Any:
    """Return pydantic's schema without titles, strict about names, nodes told apart by a key."""
    if isinstance(value, list):
        return [_tidied(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    if {"$ref": "#/$defs/RepeatNode"} in value.get("oneOf", ()):
        return {"$ref": "#/$defs/node"}
    kept = {
        key: _tidied(inner)
        for key, inner in value.items()
        if key != "title" or not isinstance(inner, str)
    }
    if "patternProperties" in kept:
        kept["additionalProperties"] = False
    return kept


def _each(record: Schema, inner: Schema) -> None:
    """Let every value of an object have a schema."""
    record["patternProperties"] = dict.fromkeys(record["patternProperties"], inner)


def _described(inner: Schema, record: Schema, key: str) -> Schema:
    """Return a schema for a key that keeps the description of the one before."""
    said = record["properties"][key].get("description")
    return {**inner, "description": said} if said else inner


def _describe(record: Schema, form: type[BaseModel]) -> None:
    """Add to each key what the form's own source says of it."""
    keys = {name: field.alias or name for name, field in form.model_fields.items()}
    for name, text in _said_of_fields(form):
        if name in keys:
            record["properties"][keys[name]]["description"] = text


def _said_of_fields(form: type[BaseModel]) -> Iterator[tuple[str, str]]:
    """Walk the fields of a form, parents' first, each with the text that stands below it."""
    for base in form.__bases__:
        if issubclass(base, BaseModel) and base is not BaseModel:
            yield from _said_of_fields(base)
    [tree] = ast.parse(textwrap.dedent(inspect.getsource(form))).body
    lines = tree.body if isinstance(tree, ast.ClassDef) else []
    for field, below in itertools.pairwise(lines):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                yield name, inspect.cleandoc(text)


def as_text(found: Mapping[str, Any]) -> str:
    """Return a schema as the text of its file."""
    return json.dumps(found, indent=2, ensure_ascii=False) + "\n"
