"""Tests of diagrams: boxes, wires, and escaping of names."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel
from weft.blocks.registry import registry, standard
from weft.extensions.interop.export.flat import flat_graph
from weft.graphs.checker.check import check
from weft.graphs.draw.diagram import diagram as draw_dot
from weft.graphs.draw.diagram import draw
from weft.graphs.draw.labels import count_words, markup, quoted, words_of
from weft.graphs.ir.block_type import BlockType, Registry, Signature, Slot, port
from weft.graphs.ir.graph import BlockNode, Graph, Part
from weft.specs.findings import InputError
from weft.specs.load import load, loaded

NEEDS_DOT = pytest.mark.skipif(shutil.which("dot") is None, reason="graphviz's dot is not here")
NASTY = 'a "b" <i>c</i> & \\N \\" -> {d|e} \x07\ud800'
"""Text that would break an unescaped label."""

TOY: dict[str, Any] = {
    "format": 1,
    "name": "toy-decoder",
    "doc": NASTY,
    "axes": {"B": "batch", "T": "time"},
    "inputs": {"tokens": "ids:100[B T]"},
    "outputs": {"scores": "head.y"},
    "blocks": {
        "layer": {
            "inputs": {"x": "f[B T 16]"},
            "outputs": {"x": "mlp.y"},
            "nodes": {
                "attend": {
                    "use": "sublayer@1",
                    "in": {"x": "x"},
                    "params": {"order": "pre"},
                    "fill": {"f": {"use": "attention@1", "params": {"heads": 2, "causal": True}}},
                },
                "mlp": {
                    "use": "sublayer@1",
                    "in": {"x": "attend.y"},
                    "params": {"order": "pre"},
                    "fill": {
                        "f": {
                            "use": "feed_forward@1",
                            "params": {"d_ff": 32, "activation": "gelu", "bias": False},
                        }
                    },
                },
            },
        },
        "start": {
            "inputs": {"ids": "ids:100[B T]"},
            "outputs": {"x": "place.y"},
            "nodes": {
                "embed": {"use": "embedding@1", "in": {"ids": "ids"}, "params": {"d_model": 16}},
                "place": {
                    "use": "learned_position@1",
                    "in": {"x": "embed.y"},
                    "params": {"max_length": 64},
                },
            },
        },
    },
    "nodes": {
        "opening": {"use": "start", "in": {"ids": "tokens"}},
        "stack": {"repeat": 3, "block": "layer", "carry": ["x"], "in": {"x": "opening.x"}},
        "head": {
            "use": "linear@1",
            "in": {"x": "stack.x"},
            "params": {"d_out": 100, "bias": False},
        },
    },
    "tie": [["opening.embed.weight", "head.weight"]],
    "step": {"axis": "T"},
}


def base() -> Graph:
    """Return the paper's base model."""
    spec = load("transformer-base")
    return check(spec.form, registry(), source=spec.source)


def toy(blocks: Registry | None = None, **changes: Any) -> Graph:
    """Return a small decoder-only model with changed keys."""
    spec = loaded({**TOY, **changes})
    return check(spec.form, blocks or registry())


def edges(source: str) -> dict[tuple[str, str], str]:
    """Return the wires of a DOT text: (start, end) to the attributes."""
    found = re.findall(r'^\s*"?([^"\n]+?)"? -> "?([^"\n]+?)"?(?: \[(.*)\])?$', source, re.MULTILINE)
    return {(tail, head): style for tail, head, style in found if "invis" not in style}


def label(source: str, box: str) -> str:
    """Return the text of a box without tags."""
    known = rf'^\s*"?{re.escape(box)}"? \[.*?label=(?:<(.*)>|"?([^"\]]*?)"?)(?: \w+=.*)?\]$'
    found = re.search(known, source, re.MULTILINE)
    assert found is not None, box
    return text_of(found[1] or found[2])


def text_of(text: str) -> str:
    """Return the text of labels on one line."""
    return " ".join(re.sub(r"<[^>]*>|\\\\n", " ", text).split())


FEED = {"use": "feed_forward@1", "params": {"d_ff": 9}}


def part_of(use: dict[str, Any]) -> Part:
    """Return the part of a use of a block in a minimal spec."""
    value = {
        "format": 1,
        "name": "one",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": "f[B T 8]"},
        "outputs": {"y": "node.y"},
        "nodes": {"node": {**use, "in": {"x": "x"}}},
    }
    part = check(loaded(value).form, registry()).root.nodes[0].part
    assert part is not None
    return part


def test_each_template_is_drawn_once_with_how_often_it_repeats() -> None:
    """Two frames, six copies each, and one box for each node of a template."""
    source = draw_dot(base()).source

    assert source.count('subgraph "cluster_') == 2
    assert source.count("× 6<") == 2
    for template in ("encoder layer", "decoder layer"):
        assert f">{template}</font>" in source
    assert source.count('"node/encoder.*.self_attention" [label=') == 1


def test_a_sublayer_is_called_after_what_it_wraps() -> None:
    """The label is the attention; the wrapper is the paper's band."""
    source = draw_dot(base()).source

    assert label(source, "node/encoder.*.self_attention") == (
        "add &amp; norm multi-head attention 8 heads"
    )
    assert label(source, "node/decoder.*.self_attention") == (
        "add &amp; norm masked multi-head attention 8 heads"
    )
    assert label(source, "node/decoder.*.feed_forward") == (
        "add &amp; norm feed-forward d_ff 2048, relu"
    )


def test_pre_norm_is_drawn_below_and_the_sum_above() -> None:
    """Values flow upward, so the first operation is lowest."""
    source = draw_dot(toy()).source

    assert label(source, "node/stack.*.attend") == "add masked multi-head attention 2 heads norm"


@pytest.mark.parametrize(
    ("use", "below", "above"),
    [
        ({"params": {"order": "sandwich"}}, ("norm",), ("norm & add",)),
        ({"params": {"norm": "none", "residual": "rezero"}}, (), ("scale & add",)),
        ({"params": {"order": "pre", "residual": "layer_scale"}}, ("norm",), ("scale & add",)),
    ],
    ids=["sandwich", "rezero", "layer_scale"],
)
def test_a_residual_path_shows_its_operations(
    use: dict[str, Any], below: tuple[str, ...], above: tuple[str, ...]
) -> None:
    """Bands below and above the sub-layer, in execution order."""
    words = words_of(part_of({"use": "sublayer@1", "fill": {"f": FEED}, **use}))

    assert (words.title, words.below, words.above) == ("feed-forward", below, above)


@pytest.mark.parametrize(("heads", "words"), [(1, "1 head"), (2, "2 heads")])
def test_one_head_is_no_plural(heads: int, words: str) -> None:
    """Of a row of a study that has one head, say."""
    assert words_of(part_of({"use": "attention@1", "params": {"heads": heads}})).detail == words


def test_two_sublayers_side_by_side_are_one_box_that_names_both() -> None:
    """With the params of both."""
    read = {"use": "attention@1", "params": {"heads": 2}}
    words = words_of(part_of({"use": "parallel_sublayer@1", "fill": {"f": read, "g": FEED}}))

    assert words.title == "multi-head attention + feed-forward"
    assert words.detail == "2 heads, d_ff 9, relu"
    assert (words.below, words.above) == (("norm",), ("add",))


def test_the_memory_goes_from_the_encoder_to_every_cross_attention() -> None:
    """One thick wire when folded, one for each layer when expanded."""
    folded, expanded = (edges(draw_dot(base(), form).source) for form in ("folded", "expanded"))

    wire = folded["node/encoder.*.feed_forward", "node/decoder.*.cross_attention"]
    assert "dashed" not in wire
    for layer in range(6):
        assert ("node/encoder.5.feed_forward", f"node/decoder.{layer}.cross_attention") in expanded


def test_masks_are_thin_and_dashed() -> None:
    """They do not carry activations."""
    found = edges(draw_dot(base()).source)

    masks = {ends for ends, style in found.items() if "dashed" in style}
    assert masks == {
        ("input/source_mask", "node/encoder.*.self_attention"),
        ("input/source_mask", "node/decoder.*.cross_attention"),
    }


def test_every_wire_of_the_paper_is_there_and_no_other() -> None:
    """Carried values are not drawn as loops."""
    found = set(edges(draw_dot(toy()).source))

    assert found == {
        ("input/tokens", "node/opening.embed"),
        ("node/opening.embed", "node/opening.place"),
        ("node/opening.place", "node/stack.*.attend"),
        ("node/stack.*.attend", "node/stack.*.mlp"),
        ("node/stack.*.mlp", "node/head"),
        ("node/head", "output/scores"),
    }


def test_the_typed_form_writes_the_type_on_each_wire() -> None:
    """As in the spec, with sizes evaluated."""
    found = edges(draw_dot(base(), "typed").source)

    assert all("label=" in style for style in found.values())
    wire = found["node/encoder.*.feed_forward", "node/decoder.*.cross_attention"]
    assert "f[B S 512]" in wire
    assert "ids:37000[B T]" in found["input/target", "node/target_embedding"]
    assert "label=" not in str(edges(draw_dot(base()).source))


def test_the_expanded_form_has_a_box_for_each_placed_block() -> None:
    """Every vertex and every wire of `flat()`; input masks are drawn as text instead."""
    graph = base()
    flat, source = flat_graph(graph), draw_dot(graph, "expanded").source

    blocks = [vertex for vertex, kind in flat.nodes(data="kind") if kind == "block"]
    assert len(blocks) == 5 + 6 * 2 + 6 * 3
    for vertex in blocks:
        assert f'"node/{vertex}" [label=' in source
    drawn = [wires for _, _, wires in flat.edges(data="wires") if wires[0]["type"].kind != "mask"]
    assert len(edges(source)) == len(drawn)
    assert "reads source_mask" in label(source, "node/decoder.3.cross_attention")
    assert source.count('subgraph "cluster_decoder.') == 6


def test_the_title_has_the_size_and_the_shared_weight() -> None:
    """Tied weights are marked where they are used."""
    source = draw_dot(base()).source

    assert ">transformer-base<" in source
    assert "63.1M parameters" in source
    assert "source_embedding, target_embedding and head share one weight" in text_of(source)
    for box in ("source_embedding", "target_embedding", "head"):
        assert label(source, f"node/{box}").endswith("shared weight")
    assert "shared weight" not in draw_dot(toy(tie=[])).source


def test_several_shared_weights_are_numbered() -> None:
    """Boxes with the same number share one tensor, in any copy."""
    ties = [
        ["opening.embed.weight", "head.weight"],
        ["stack.0.attend.f.query.weight", "stack.2.attend.f.query.weight"],
    ]
    graph = toy(tie=ties)
    folded, expanded = (draw_dot(graph, form).source for form in ("folded", "expanded"))

    assert "share one weight" not in folded
    assert label(folded, "node/head").endswith("shared weight 1")
    assert "shared weight 2" in label(folded, "node/stack.*.attend")
    assert "shared weight 2" in label(expanded, "node/stack.2.attend")
    assert "shared weight" not in label(expanded, "node/stack.1.attend")


@pytest.mark.parametrize("form", ["folded", "typed", "expanded"])
def test_equal_graphs_give_equal_text(form: Literal["folded", "typed", "expanded"]) -> None:
    """The text does not depend on the order of a set or on an address."""
    assert draw_dot(base(), form).source == draw_dot(base(), form).source


def test_parts_that_the_picture_has_no_words_for_are_named_by_their_key() -> None:
    """Blocks of other packages need no entry in the table."""

    class MixerParams(BaseModel, frozen=True, extra="forbid"):
        kernel: int
        style: str = "plain"
        gated: bool = False
        deep: bool = True

    def mixer(_: MixerParams, __: frozenset[str]) -> Signature:
        same = "f[... d_model]"
        slot = Slot("inner", port("x", same), port("y", same))
        return Signature((port("x", same),), (port("y", same),), (slot,))

    mixer_block = BlockType(
        name="token_mixer",
        doc="Mixes.",
        source="none",
        params=MixerParams,
        signature=mixer,
        module="none:None",
    )
    node = {
        "use": "token_mixer@1",
        "in": {"x": "opening.x"},
        "params": {"kernel": 3, "style": NASTY[:-1], "gated": True, "deep": False},
        "fill": {"inner": {"use": "layer_norm@1"}},
    }
    nodes = {**TOY["nodes"], "mix": node}
    nodes["stack"] = {**nodes["stack"], "in": {"x": "mix.y"}}
    graph = toy(Registry([*standard(), mixer_block]), nodes=nodes)

    source = draw_dot(graph).source
    said = label(source, "node/mix")
    assert said.startswith("token mixer, kernel 3, style a &quot;b&quot; &lt;i")
    assert said.endswith("layer norm")
    part = next(node.part for node in graph.root.nodes if node.name == "mix")
    assert part is not None
    (band,) = words_of(part).above
    assert band.endswith("gated, no deep")
    if shutil.which("dot"):
        subprocess.run(["dot", "-Tsvg"], input=source.encode(), check=True, capture_output=True)


@pytest.mark.parametrize("make", [quoted, markup])
def test_text_for_labels_has_no_live_characters(make: Any) -> None:
    """No tags, no Graphviz escapes, and no characters that a file cannot contain."""
    said = make(NASTY)

    assert "\x07" not in said
    said.encode()
    if make is markup:
        assert not set('<>"\\') & set(said)
    else:
        assert "\\\\N" in said


@NEEDS_DOT
def test_a_doc_with_markup_is_shown_as_text(tmp_path: Path) -> None:
    """The SVG is well-formed, executes nothing, and contains the text itself."""
    out = draw(toy(), tmp_path / "toy.svg")

    root = ET.parse(out).getroot()
    titles = {value for item in root.iter() for key, value in item.attrib.items() if "title" in key}
    assert any('a "b" <i>c</i> & \\N \\" -> {d|e}' in title for title in titles)
    assert not [item for item in root.iter() if item.tag.endswith(("script", "image", "}i"))]


@NEEDS_DOT
@pytest.mark.parametrize(
    ("suffix", "magic"),
    [("svg", b"<?xml"), ("png", b"\x89PNG"), ("pdf", b"%PDF"), ("PNG", b"\x89PNG")],
)
def test_the_suffix_picks_the_format(suffix: str, magic: bytes, tmp_path: Path) -> None:
    """The file has the format of its suffix, and no other file is created."""
    out = draw(toy(), tmp_path / f"toy.{suffix}", "typed")

    assert out.read_bytes().startswith(magic)
    assert list(tmp_path.iterdir()) == [out]


@NEEDS_DOT
def test_dot_lays_out_every_form_without_complaint() -> None:
    """A warning of dot counts as an error."""
    for form in ("folded", "typed", "expanded"):
        source = draw_dot(base(), form).source
        done = subprocess.run(
            ["dot", "-Tsvg"], input=source.encode(), capture_output=True, check=True
        )
        assert done.stderr == b""


@NEEDS_DOT
def test_the_encoder_is_left_of_the_decoder_and_inputs_are_below() -> None:
    """As in the paper's figure."""
    text = subprocess.run(
        ["dot", "-Tplain"], input=draw_dot(base()).source.encode(), capture_output=True, check=True
    ).stdout.decode()
    at = {
        words[1].strip('"'): (float(words[2]), float(words[3]))
        for words in (line.split() for line in text.splitlines())
        if words[0] == "node"
    }

    encoder, decoder = at["node/encoder.*.self_attention"], at["node/decoder.*.cross_attention"]
    assert encoder[0] < decoder[0]
    assert at["input/source"][0] < at["input/target"][0]
    assert at["input/source"][1] == at["input/target"][1] == min(y for _, y in at.values())
    assert at["output/logits"][1] == max(y for _, y in at.values())


def test_dot_text_needs_no_dot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without Graphviz can still write the text."""
    monkeypatch.setenv("PATH", str(tmp_path))

    out = draw(toy(), tmp_path / "toy.dot")

    assert out.read_text(encoding="utf-8") == draw_dot(toy()).source


def test_a_missing_dot_gives_help(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The help says to install it or to write a `.dot` file."""
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(InputError) as caught:
        draw(toy(), tmp_path / "toy.svg")

    assert "graphviz" in caught.value.help
    assert ".dot" in caught.value.help
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["toy.bmp", "toy", ".svg"])
def test_an_unknown_suffix_lists_the_known_ones(name: str, tmp_path: Path) -> None:
    """Nothing is written, and the help lists the choices."""
    with pytest.raises(InputError) as caught:
        draw(toy(), tmp_path / name)

    assert all(f".{suffix}" in caught.value.help for suffix in ("svg", "png", "pdf", "dot"))
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there_is_made(tmp_path: Path) -> None:
    """The output folder is created."""
    assert draw(toy(), tmp_path / "new" / "toy.dot").is_file()


def test_an_unwritable_path_is_an_input_error(tmp_path: Path) -> None:
    """If the folder is a file, the result is an InputError without a traceback."""
    (tmp_path / "file").write_text("")

    with pytest.raises(InputError, match="cannot write"):
        draw(toy(), tmp_path / "file" / "toy.dot")


@pytest.mark.parametrize(
    ("lines", "quoted"),
    [
        (["first", "no such font"], "no such font"),
        (
            ["Warning: a font", "Error: trouble in init_rank", "\t%0 1"],
            "Error: trouble in init_rank",
        ),
    ],
)
def test_a_dot_that_fails_is_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[str], quoted: str
) -> None:
    """The message contains the error of its output, or else the last line."""
    program = tmp_path / "dot"
    program.write_text(
        "".join(["#!/bin/sh\n", *(f"echo '{one}' >&2\n" for one in lines), "exit 3"])
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(InputError, match=rf"'dot' failed: {quoted}\n"):
        draw(toy(), tmp_path / "toy.svg")


@pytest.mark.integration
def test_drawing_loads_no_torch(tmp_path: Path) -> None:
    """Drawing takes a fraction of a second."""
    code = (
        "import sys; from pathlib import Path; from weft.specs.load import load;"
        "from weft.graphs.checker.check import check; from weft.blocks.registry import registry;"
        "from weft.graphs.draw.diagram import draw; from weft.graphs.draw.outline import render;"
        "graph = check(load('transformer-base').form, registry());"
        f"draw(graph, Path({str(tmp_path / 'base.dot')!r})); render(graph);"
        "sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0"), (999, "999"), (1000, "1.0k"), (63_082_496, "63.1M"), (2_000_000_000, "2.0B")],
)
def test_sizes_are_rounded_with_a_letter(count: int, words: str) -> None:
    """One decimal, and a letter for thousands."""
    assert count_words(count) == words


def test_a_block_gets_its_color_and_title_from_its_type() -> None:
    """Blocks of other packages are drawn like shipped ones, independent of their names."""
    mixer = replace(
        next(block for block in registry() if block.key == "dropout@1"),
        name="attention_like_mixer",
        title="token mixer",
        family="recurrent",
    )
    value = {
        "format": 1,
        "name": "mixed",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": "f[B T 4]"},
        "outputs": {"y": "mix.y"},
        "nodes": {
            "mix": {"use": "attention_like_mixer@1", "in": {"x": "x"}, "params": {"dropout": 0.1}}
        },
    }

    graph = check(loaded(value).form, Registry([mixer]))

    [node] = graph.root.nodes
    assert isinstance(node, BlockNode)
    words = words_of(node.part)
    assert (words.title, words.family) == ("token mixer", "recurrent")


def test_a_mask_has_its_own_line_next_to_a_thick_one() -> None:
    """Otherwise the output of `prepend@1` would look unmasked."""
    spec = {
        "format": 1,
        "name": "masked",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": "f[B T 8]", "mask": "mask[B T]"},
        "outputs": {"y": "read.y"},
        "nodes": {
            "start": {"use": "prepend@1", "in": {"x": "x", "mask": "mask"}},
            "read": {
                "use": "attention@1",
                "in": {"x": "start.y", "mask": "start.mask"},
                "params": {"heads": 2},
            },
        },
    }
    source = draw_dot(check(loaded(spec).form, registry()), "typed").source
    lines = [line for line in source.splitlines() if '"node/start" -> "node/read"' in line]

    assert len(lines) == 2
    assert sum("dashed" in line for line in lines) == 1


def test_a_picture_of_every_copy_has_a_bounded_number_of_boxes(tmp_path: Path) -> None:
    """Dot would take minutes for ten thousand; the other forms draw a stack once."""
    spec = load("transformer-tiny")
    graph = check(spec.form, registry(), {"layers": 2000})

    with pytest.raises(InputError, match="would have 10,005 boxes, more than 10,000"):
        draw(graph, tmp_path / "a.dot", "expanded")
    assert not (tmp_path / "a.dot").exists()
    assert draw(graph, tmp_path / "a.dot", "folded").is_file()
