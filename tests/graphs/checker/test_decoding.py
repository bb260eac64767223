"""Tests of decodability: a graph can be decoded step by step, or the obstacle is named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.graphs.checker.decoding import find_obstacles
from weft.graphs.ir.traverse import moving_ports, moving_values, root_moving

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.graphs.ir.graph import Graph

    Edit = Callable[..., dict[str, Any]]
    GraphOf = Callable[..., Graph]
    FindingsOf = Callable[..., Any]

DECODER = "/blocks/decoder_layer/nodes"


def test_transformer_base_can_be_stepped(edit: Edit, graph_of: GraphOf) -> None:
    """No node reads later positions of T."""
    assert list(find_obstacles(graph_of(edit({})))) == []


def test_nodes_are_split_into_fixed_and_moving(edit: Edit, graph_of: GraphOf) -> None:
    """The encoder is computed once; all nodes that depend on the target, at every step."""
    graph = graph_of(edit({}))
    starts = root_moving(graph)

    moving = moving_values(graph.root, starts)

    assert starts == {"target"}
    assert moving == {"target", "target_embedding.y", "target_position.y", "decoder.x", "head.y"}
    ports = {node.name: moving_ports(node, moving) for node in graph.root.nodes}
    assert ports["encoder"] == frozenset()
    assert ports["decoder"] == {"x"}
    assert ports["head"] == {"x"}


def test_a_carried_value_moves_from_the_first_copy(edit: Edit, graph_of: GraphOf) -> None:
    """If only the memory moves, the carried value moves from the second copy on."""
    decoder = next(n for n in graph_of(edit({})).root.nodes if n.name == "decoder")

    assert moving_ports(decoder, frozenset({"encoder.x"})) == {"x", "memory"}
    assert moving_ports(decoder, frozenset({"target_position.y"})) == {"x"}
    assert moving_ports(decoder, frozenset()) == frozenset()


def test_attention_without_causal_is_named_with_its_path(
    edit: Edit, findings_of: FindingsOf
) -> None:
    """The finding is the same if `causal` is missing or false."""
    forgotten = edit({}, [f"{DECODER}/self_attention/fill/f/params/causal"])
    false = edit({f"{DECODER}/self_attention/fill/f/params/causal": False})

    for spec in (forgotten, false):
        assert [(f.code, f.at) for f in findings_of(spec)] == [
            ("D01", f"{DECODER}/self_attention/fill/f")
        ]


def test_attention_in_a_template_in_a_slot_is_named_there(
    edit: Edit, findings_of: FindingsOf
) -> None:
    """Non-causal attention is found; causal attention is accepted."""
    node = {"use": "attention@1", "in": {"x": "x"}}
    ports = {"inputs": {"x": "f[B T d_model]"}, "outputs": {"y": "read.y"}}
    found = []
    for causal in (True, False):
        read = {**node, "params": {"heads": "=heads", "causal": causal}}
        inner = {**ports, "nodes": {"read": read}}
        edits = {f"{DECODER}/self_attention/fill/f": {"use": "inner"}, "/blocks/inner": inner}
        found.append([(f.code, f.at) for f in findings_of(edit(edits))])

    assert found == [[], [("D01", "/blocks/inner/nodes/read")]]


def test_without_a_step_nothing_need_be_causal(edit: Edit, findings_of: FindingsOf) -> None:
    """A model that is not decoded may read all positions."""
    spec = edit({}, [f"{DECODER}/self_attention/fill/f/params/causal", "/step"])

    assert findings_of(spec) == []


def test_the_encoder_need_not_be_causal(edit: Edit, findings_of: FindingsOf) -> None:
    """Its attention reads S, which does not move; so does cross-attention."""
    assert findings_of(edit({})) == []


def test_decoding_along_the_source_finds_all_that_reads_it(
    edit: Edit, findings_of: FindingsOf
) -> None:
    """Both attentions over S, but no node that only reads their outputs."""
    found = findings_of(edit({"/step/axis": "S"}))

    assert [(f.code, f.at) for f in found] == [
        ("D01", "/blocks/encoder_layer/nodes/self_attention/fill/f"),
        ("D01", f"{DECODER}/cross_attention/fill/f"),
    ]


def test_a_graph_whose_outputs_do_not_move_is_found(edit: Edit, findings_of: FindingsOf) -> None:
    """The decoder is given the memory, which depends on S, but returns it without reading it."""
    spec = edit(
        {
            "/blocks/encoder_layer/nodes/self_attention/fill/f/params/causal": True,
            f"{DECODER}/cross_attention/fill/f": {"use": "feed_forward@1", "params": {"d_ff": 8}},
            "/step/axis": "S",
        }
    )
    spec["blocks"]["decoder_layer"]["nodes"]["cross_attention"]["in"] = {"x": "self_attention.y"}
    spec["blocks"]["decoder_layer"]["outputs"]["m"] = "memory"
    del spec["blocks"]["decoder_layer"]["inputs"]["mask"], spec["nodes"]["decoder"]["in"]["mask"]

    found = findings_of(spec)

    assert [(f.code, f.at) for f in found] == [("D01", "/step/axis")]
    assert found[0].problem.endswith("no output depends on that axis")


def test_an_encoder_only_spec_is_valid_without_step(edit: Edit, findings_of: FindingsOf) -> None:
    """With `step`, the finding names the obstacle."""
    spec = edit({"/outputs": {"y": "encoder.x"}, "/tie": [], "/inputs/target": ""})
    del spec["inputs"]["target"], spec["step"], spec["blocks"]["decoder_layer"]
    for name in ("target_embedding", "target_position", "decoder", "head"):
        del spec["nodes"][name]
    spec["axes"] = {"B": "batch", "S": "time"}

    assert findings_of(spec) == []
    assert [(f.code, f.at) for f in findings_of({**spec, "step": {"axis": "S"}})] == [
        ("D01", "/blocks/encoder_layer/nodes/self_attention/fill/f")
    ]


def test_decodability_is_reported_with_other_mistakes(edit: Edit, findings_of: FindingsOf) -> None:
    """A mistake after the decoder does not hide the decoder's finding."""
    spec = edit({"/nodes/head/params/d_out": 0}, [f"{DECODER}/self_attention/fill/f/params/causal"])

    assert sorted(f.code for f in findings_of(spec)) == ["D01", "P01"]


def test_a_graph_without_step_has_no_obstacles(edit: Edit, graph_of: GraphOf) -> None:
    """Without `step` there are no requirements."""
    assert list(find_obstacles(graph_of(edit({}, ["/step"])))) == []
