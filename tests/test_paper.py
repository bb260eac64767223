"""The paper: its model, and table 3."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest
import torch
from weft.blocks.kernels.decode_state import Capacity
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.ir.graph import Graph
from weft.runtime.codegen.build import build, build_empty
from weft.runtime.train.recipe.schedule import of_paper, peak_of, share_of_peak
from weft.specs.load import load
from weft.specs.reader import SHIPPED


def graph(name: str, **params: Any) -> Graph:
    """Return a shipped spec, checked, with some params set."""
    return check(load(name).form, registry(), params)


def test_base_at_37000_by_hand() -> None:
    """One shared matrix, and biases on every projection but the last.

    attention     4 * 512^2 + 4 * 512            = 1050624
    feed-forward  2 * 512 * 2048 + 2048 + 512    = 2099712
    norm          2 * 512                        = 1024
    encoder       1050624 + 2099712 + 2 * 1024   = 3152384
    decoder       2 * 1050624 + 2099712 + 3072   = 4204032
    all           37000 * 512 + 6 * (both)       = 63082496
    """
    assert graph("transformer-base").parameters() == 63_082_496


def test_big_at_37000_by_hand() -> None:
    """Width 1024: layers of 12596224 and 16796672, and a matrix of 37888000."""
    assert graph("transformer-big").parameters() == 6 * (12_596_224 + 16_796_672) + 37_888_000


def test_tiny_at_10000_by_hand() -> None:
    """Width 128, 4 + 4 layers of 132480 and 198784, and a matrix of 1280000."""
    assert graph("transformer-tiny").parameters() == 4 * (132_480 + 198_784) + 1_280_000
    assert graph("transformer-tiny").parameters() == 2_605_056


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("transformer-base", 63_082_496),
        ("transformer-big", 214_245_376),
        ("transformer-tiny", 2_605_056),
    ],
)
def test_torch_counts_the_same(name: str, count: int) -> None:
    """The blocks' formulas agree with the modules; a shared matrix counts once."""
    model = build_empty(graph(name), device="meta")

    assert sum(weight.numel() for weight in model.parameters()) == count
    assert {str(weight.device) for weight in model.parameters()} == {str(torch.device("meta"))}


@pytest.mark.parametrize(
    ("name", "peak"), [("transformer-base", 6.99e-4), ("transformer-big", 4.94e-4)]
)
def test_the_learning_rate_peaks_where_section_5_3_puts_it(name: str, peak: float) -> None:
    """d_model^-0.5 * 4000^-0.5, at update 4000."""
    schedule = of_paper()
    shares = [share_of_peak(schedule, update, 100_000) for update in (3999, 4000, 4001)]

    rates = [peak_of(schedule, graph(name).params) * share for share in shares]

    assert rates[1] == pytest.approx(peak, abs=0.005e-4)
    assert rates[1] == max(rates)


PADDED = 40_960
"""Vocabulary of the released code."""
SPACES = 32
"""Rows of its target-space table."""


class Row(NamedTuple):
    """A row as printed in the paper, with empty cells filled from the row `base`."""

    printed: int
    """Millions of parameters."""
    closer: float
    """The same with at least two more digits, computed from the released code."""
    layers: int = 6
    d_model: int = 512
    d_ff: int = 2048
    heads: int = 8
    d_k: int = 64
    d_v: int = 64
    dropout: float = 0.1

    def by_hand(self, vocab: int) -> int:
        """Return the parameter count: biases on all projections but the last, one shared matrix."""
        d, keys, values = self.d_model, self.heads * self.d_k, self.heads * self.d_v
        attention = 2 * d * keys + 2 * keys + d * values + values + values * d + d
        feed_forward = 2 * d * self.d_ff + self.d_ff + d
        encoder = attention + feed_forward + 2 * 2 * d
        decoder = 2 * attention + feed_forward + 3 * 2 * d
        return vocab * d + self.layers * (encoder + decoder)


BASE = Row(65, 65.1264)
ROWS = {
    "a1": BASE._replace(heads=1, d_k=512, d_v=512),
    "a2": BASE._replace(heads=4, d_k=128, d_v=128),
    "a3": BASE._replace(heads=16, d_k=32, d_v=32),
    "a4": BASE._replace(heads=32, d_k=16, d_v=16),
    "b1": Row(58, 58.03, d_k=16),
    "b2": Row(60, 60.40, d_k=32),
    "c1": Row(36, 35.70, layers=2),
    "c2": Row(50, 50.41, layers=4),
    "c3": Row(80, 79.84, layers=8),
    "c4": Row(28, 27.86, d_model=256, d_k=32, d_v=32),
    "c5": Row(168, 167.98, d_model=1024, d_k=128, d_v=128),
    "c6": Row(53, 52.53, d_ff=1024),
    "c7": Row(90, 90.32, d_ff=4096),
    "d1": BASE._replace(dropout=0.0),
    "d2": BASE._replace(dropout=0.2),
    "d3": BASE,
    "d4": BASE,
}
BIG = Row(213, 218.3, d_model=1024, d_ff=4096, heads=16, dropout=0.3)
LEARNED = 2 * 256 * 512
"""Weights that row E adds: a vector per position, 256 in the encoder and in the decoder."""
FILES = {f"table3-{row}": values for row, values in ROWS.items()}
EVERY = pytest.mark.parametrize(
    ("name", "row"),
    [("transformer-base", BASE), *FILES.items(), ("transformer-big", BIG)],
    ids=["base", *ROWS, "big"],
)
SMALL = {"layers": 2, "d_model": 64, "d_ff": 48, "vocab": 30}


def released(name: str) -> int:
    """Return the number of parameters as the released code counted them."""
    made = graph(name, vocab=PADDED)
    return made.parameters() + SPACES * made.params["d_model"]


def written(name: str) -> dict[str, Any]:
    """Return the text of a variant."""
    text = (SHIPPED / "variants" / f"{name}.json").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 12
    return dict(json.loads(text))


def test_every_row_is_shipped() -> None:
    """Rows A to D, and E; the rows `base` and `big` are separate models."""
    shipped = {path.stem for path in (SHIPPED / "variants").glob("table3-*.json")}

    assert shipped == {*FILES, "table3-e"}


@pytest.mark.parametrize("name", [*FILES, "table3-e"])
def test_a_row_contains_only_its_changes(name: str) -> None:
    """A row sets only params of transformer-base, and its doc names the row."""
    spec = written(name)

    assert set(spec) - {"params"} == {"format", "extends", "name", "doc"}
    assert spec["extends"] == "transformer-base"
    assert spec["doc"].startswith(f"Vaswani et al. 2017, table 3, row {name[7:].upper()}: ")


@EVERY
def test_a_row_has_the_sizes_of_the_paper(name: str, row: Row) -> None:
    """All sizes printed in the paper, some of which follow from others in the spec."""
    params = graph(name).params

    expected = {key: value for key, value in row._asdict().items() if key in params}
    assert {key: params[key] for key in expected} == expected
    assert set(expected) == {"layers", "d_model", "d_ff", "heads", "d_k", "d_v", "dropout"}


@EVERY
@pytest.mark.parametrize("vocab", [37_000, PADDED])
def test_parameters_of_a_row_by_hand(name: str, row: Row, vocab: int) -> None:
    """The counts agree exactly."""
    assert graph(name, vocab=vocab).parameters() == row.by_hand(vocab)


@pytest.mark.parametrize("row", ROWS)
def test_a_row_has_the_printed_millions_of_parameters(row: str) -> None:
    """Parameters are counted as in the released code."""
    printed, closer, *_ = ROWS[row]

    millions = released(f"table3-{row}") / 1e6

    assert round(millions) == printed
    digits = len(str(closer).partition(".")[2])
    assert round(millions, max(digits, 2)) == closer


def test_base_counts_65126400_as_released() -> None:
    """37000 becomes 40960, and 32 more rows: 63082496 + 3992 * 512."""
    assert released("transformer-base") == 65_126_400 == 63_082_496 + 3_992 * 512


def test_the_released_form_puts_sines_first_and_counts_the_same() -> None:
    """65126400 less the target spaces; its sinusoids are fixed and have no parameters."""
    made = graph("transformer-released")

    assert made.parameters() == 65_126_400 - SPACES * 512
    assert made.params["vocab"] == PADDED
    positions = [node.part for node in made.root.nodes if node.name.endswith("_position")]
    assert [part.arguments["form"] for part in positions if part] == ["concatenated"] * 2


def test_row_e_learns_its_positions() -> None:
    """Two tables of 256 x 512 replace the sinusoids, and 65 million stay 65 million."""
    assert graph("table3-e").parameters() == BASE.by_hand(37_000) + LEARNED
    assert released("table3-e") == 65_126_400 + LEARNED
    assert round(released("table3-e") / 1e6) == 65


def test_big_prints_213_only_for_a_vocabulary_near_36000() -> None:
    """No vocabulary gives both 65 and 213: big needs 35.3 K to 36.3 K, base more."""

    def prints(name: str, vocab: int) -> int:
        return round(graph(name, vocab=vocab).parameters() / 1e6)

    assert [prints("transformer-big", v) for v in (35_295, 35_296, 36_272, 36_273)] == [
        BIG.printed - 1,
        BIG.printed,
        BIG.printed,
        BIG.printed + 1,
    ]
    assert [prints("transformer-base", v) for v in (36_273, PADDED)] == [63, 65]
    assert round(released("transformer-big") / 1e6, 1) == BIG.closer


@pytest.mark.slow
@pytest.mark.parametrize("name", [*FILES, "table3-e"])
def test_stepping_a_row_equals_its_parallel_pass(name: str) -> None:
    """Decoding one position at a time gives the logits of the parallel pass."""
    sizes = {
        key: value for key, value in SMALL.items() if key not in written(name).get("params", {})
    }
    model: Any = build(graph(name, **sizes)).eval()
    source, target = torch.randint(30, (2, 7)), torch.randint(30, (2, 5))
    mask = torch.ones(2, 7, dtype=torch.bool)
    mask[1, -3:] = False

    with torch.inference_mode():
        parallel = model(source=source, source_mask=mask, target=target)["logits"]
        capacity = Capacity(2, 1, 5, torch.float32, torch.device("cpu"))
        state = model.begin(capacity, source=source, source_mask=mask)
        steps = [
            model.step(target=target[:, t : t + 1], state=state, position=t)["logits"]
            for t in range(5)
        ]

    torch.testing.assert_close(torch.cat(steps, 1), parallel, rtol=1e-4, atol=1e-5)
