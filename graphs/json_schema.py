"""JSON Schema of spec files, with which editors complete and validate them.

It is generated from the records in `specs/form.py` and from the registered blocks, so keys are
defined only there.  It covers keys, params and ports; only the checker can verify that wires fit
and axes agree.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..specs.form import FORMAT, SpecForm
from ..specs.reader import FOR_EDITORS
from .advice import CHECKS
from .ir.block_type import BlockType, Registry, Signature
from .ir.value_type import KINDS, SIZED

DRAFT = "https://json-schema.org/draft/2020-12/schema"
"""The JSON Schema version of the output."""
EXPRESSION = {"type": "string", "pattern": "^="}
"""Schema of an expression, which may replace the value of any param."""

Schema = dict[str, Any]


def schema(registry: Registry) -> Schema:
    """Return the JSON Schema of a spec file: a complete spec, or one that extends another.

    Args:
        registry: the blocks that a spec may name.
    """
    spec = _tidied(SpecForm.model_json_schema())
    definitions = {**spec.pop("$defs"), **_shared(registry)}
    for types in (
        spec["properties"]["inputs"],
        spec["properties"]["output_types"],
        definitions["Template"]["properties"]["inputs"],
    ):
        _each(types, {"$ref": "#/$defs/type"})
    # A docstring says what the check yields: "Yield the blocks that read padding ...".
    reported = [(check.__doc__ or "").partition("\n")[0] for check in CHECKS.values()]
    descriptions = [line.removeprefix("Yield ").capitalize() for line in reported]
    spec["properties"]["allow"]["items"] = {"enum": [*CHECKS], "enumDescriptions": descriptions}
    for params in (spec["properties"]["params"], definitions["Template"]["properties"]["params"]):
        _each(params, {"$ref": "#/$defs/value"})
    _each(spec["properties"]["blocks"], {"$ref": "#/$defs/block"})
    for name, ports in (("Use", False), ("UseNode", True)):
        definitions[name]["properties"]["use"] = _described(
            {"$ref": "#/$defs/name"}, definitions[name], "use"
        )
        definitions[name]["allOf"] = [{"$ref": f"#/$defs/{_key(b)}:use"} for b in registry] + [
            {"$ref": f"#/$defs/{_key(block)}:ports"} for block in registry if ports
        ]
    for block in registry:
        definitions |= _of_block(block)
    spec["properties"] = {FOR_EDITORS: {"type": "string"}, **spec["properties"]}
    definitions |= {"spec": spec, "child": _child(spec), "patch": _patch()}
    return {
        "$schema": DRAFT,
        "title": f"Weft spec, format {FORMAT}",
        "$defs": definitions,
        "type": "object",
        "if": {"required": ["extends"]},
        "then": {"$ref": "#/$defs/child"},
        "else": {"$ref": "#/$defs/spec"},
    }


def _shared(registry: Registry) -> Schema:
    """Return the definitions used in several places: a type, a block's name, a value, a node."""
    kinds = "|".join(f"{kind}:[^\\[\\]]+" if kind in SIZED else kind for kind in KINDS)
    names = {"enum": registry.keys(), "enumDescriptions": [block.doc for block in registry]}
    template = {"type": "string", "pattern": "^[A-Za-z][A-Za-z0-9_]{0,63}$"}
    model_schema = {
        "properties": {
            "spec": {
                "if": {"type": "object"},
                "then": {"$ref": "#"},
                "else": {"type": "string"},
                "description": "A shipped spec, one in the same folder, or a complete spec.",
            },
            "params": {"type": "object", "description": "Params of that spec to override."},
            "patch": {
                "type": "array",
                "items": {"$ref": "#/$defs/patch"},
                "description": "Changes to that spec, as in a spec that extends it.",
            },
        },
        "additionalProperties": False,
    }
    choice = {
        "if": {"type": "object"},
        "then": {
            "if": {"required": ["spec"]},
            "then": model_schema,
            "else": {
                "properties": {"use": {"$ref": "#/$defs/name"}, "params": {"type": "object"}},
                "additionalProperties": False,
                "required": ["use"],
                "allOf": [
                    _when(
                        block, {"properties": {"params": {"$ref": f"#/$defs/{_key(block)}:params"}}}
                    )
                    for block in registry
                ],
            },
        },
    }
    repeats = {"anyOf": [{"required": ["repeat"]}, _block_without_use()]}
    node = {
        "if": repeats,
        "then": {"$ref": "#/$defs/RepeatedTemplate"},
        "else": {
            "if": {"required": ["share"], "not": {"required": ["use"]}},
            "then": {"$ref": "#/$defs/ShareNode"},
            "else": {"$ref": "#/$defs/UseNode"},
        },
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
    """Return the schema of a template that is imported from a spec."""
    properties = {
        "spec": {"type": "string", "description": "A shipped spec, or one in the same folder."},
        "params": {"type": "object", "description": "Params of that spec to override."},
        "doc": {"type": "string"},
    }
    return {"properties": properties, "additionalProperties": False}


def _block_without_use() -> Schema:
    return {"required": ["block"], "not": {"required": ["use"]}}


def _key(block: BlockType) -> str:
    """Return a block's key, escaped for a JSON Pointer."""
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
        metadata = {word: value.pop(word) for word in ("description", "default") if word in value}
        if isinstance(value.get("additionalProperties"), dict):
            value["additionalProperties"] = {"anyOf": [value["additionalProperties"], EXPRESSION]}
        params["properties"][name] = {"anyOf": [value, EXPRESSION], **metadata}
    params["description"] = f"{block.doc} {block.source}"
    signatures = _signatures(block)
    slots = {slot.name: slot for signature in signatures for slot in signature.slots}
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
        "required": (required_slots := [s.name for s in slots.values() if not s.optional]),
    }
    if required_slots:
        use["required"].append("fill")
    ports = {port.name: port for signature in signatures for port in signature.inputs}
    wires: Schema = {
        "properties": {
            name: {"type": "string", "description": f"{port.type}: {port.doc}"}
            for name, port in ports.items()
            if block.typed is None
        }
    }
    if not slots and block.typed is None:
        wires["additionalProperties"] = False
    return {
        f"{block.key}:params": params,
        f"{block.key}:use": _when(block, use),
        f"{block.key}:ports": _when(block, {"properties": {"in": wires}}),
    }


def _signatures(block: BlockType) -> list[Signature]:
    """Return a block's signature with all ports wired, and with none wired."""
    params = block.params.model_validate(block.example)
    return [block.signature(params, frozenset(wired)) for wired in (block.example_inputs, ())]


def _child(spec: Schema) -> Schema:
    """Return the schema of a spec that extends another."""
    properties = spec["properties"]
    child_properties = {
        key: properties[key] for key in (FOR_EDITORS, "format", "name", "doc", "params", "allow")
    }
    parent = "The parent: a shipped spec, or one in the same folder; or several variants of one."
    several = {"type": "array", "items": {"type": "string"}, "minItems": 2}
    extends = {"anyOf": [{"type": "string"}, several], "description": parent}
    patch = {
        "type": "array",
        "items": {"$ref": "#/$defs/patch"},
        "description": "Changes to the parent; their order does not matter.",
    }
    return {
        "type": "object",
        "description": "A model derived from another one.",
        "properties": {
            **child_properties,
            "extends": extends,
            "blocks": properties["blocks"],
            "patch": patch,
        },
        "required": ["format", "extends", "name"],
        "additionalProperties": False,
    }


def _patch() -> Schema:
    """Return the schema of a patch: a selection and one action."""
    inserted = {
        "type": "object",
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": {"$ref": "#/$defs/node"},
        "description": "The new node under its name; '@' is the value that it receives.",
    }
    use_schema = {"properties": {"use": {"$ref": "#/$defs/name"}}}
    texts = {"type": "array", "items": {"type": "string"}, "minItems": 1}
    actions = {
        "set": {
            "type": "object",
            "minProperties": 1,
            **use_schema,
            "description": "Dotted keys to their values, such as 'params.heads'.",
        },
        "replace": {"type": "object", **use_schema, "description": "The new record."},
        "insert_before": inserted,
        "insert_after": inserted,
        "remove": {
            "anyOf": [{"const": True}, texts],
            "description": "true for the complete record, or a list of keys.",
        },
    }
    words = {
        "select": "The nodes to change: a path with * and **, and [key=value].",
        "port": "The wire or output at which the node is inserted.",
        "output": "The output of the inserted node that replaces the value it receives.",
        "through": "The port whose value the readers of the removed node read instead.",
    }
    texts_of = {key: {"type": "string", "description": doc} for key, doc in words.items()}
    expect = {"type": "integer", "minimum": 1, "description": "Number of places it must select."}
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
    """Return pydantic's schema without titles, with strict names, and a choice between nodes."""
    if isinstance(value, list):
        return [_tidied(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    if {"$ref": "#/$defs/RepeatedTemplate"} in value.get("oneOf", ()):
        return {"$ref": "#/$defs/node"}
    tidied = {
        key: _tidied(inner)
        for key, inner in value.items()
        if key != "title" or not isinstance(inner, str)
    }
    if "patternProperties" in tidied:
        tidied["additionalProperties"] = False
    return tidied


def _each(record: Schema, inner: Schema) -> None:
    """Set the schema of every value of an object."""
    record["patternProperties"] = dict.fromkeys(record["patternProperties"], inner)


def _described(inner: Schema, record: Schema, key: str) -> Schema:
    """Return a new schema for a key, with the description of the previous one."""
    description = record["properties"][key].get("description")
    return {**inner, "description": description} if description else inner


def as_text(document: Mapping[str, Any]) -> str:
    """Return a schema as JSON text."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
