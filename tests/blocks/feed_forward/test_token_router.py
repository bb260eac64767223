"""Token routing: which positions are chosen, and that top positions do not decode."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
import weft
from weft.blocks.feed_forward.token_router_module import TokenRouter

SPEC = Path(__file__).parents[3] / "examples/published/mixture-of-depths.json"
MASK = torch.tensor([[True, True, True, True, False]])


def made(choose: str) -> tuple[TokenRouter, torch.Tensor]:
    """Return a router whose logits are the inputs of width 1: 2, -1, 3, 0.5 and 9."""
    router = TokenRouter(1, 0.5, choose).double()
    with torch.no_grad():
        router.router.weight.fill_(1.0)
        router.router.bias.zero_()
    return router, torch.tensor([[[2.0], [-1.0], [3.0], [0.5], [9.0]]]).double()


def sigmoid(logit: float) -> float:
    """Return 1 / (1 + exp(-logit))."""
    return 1 / (1 + math.exp(-logit))


def test_top_positions_are_half_of_those_that_are_not_padding() -> None:
    """Two of four: 2 and 3; the weight is their probability, and padding is never chosen."""
    router, x = made("top")

    weight, mask, balance = router(x, mask=MASK)

    assert mask.tolist() == [[True, False, True, False, False]]
    assert torch.allclose(weight[0, :, 0], torch.tensor([sigmoid(2), 0, sigmoid(3), 0, 0]).double())
    terms = [sigmoid(2), 1 - sigmoid(-1), sigmoid(3), 1 - sigmoid(0.5)]
    assert math.isclose(balance.item(), -sum(map(math.log, terms)) / 4)


def test_a_threshold_chooses_each_position_on_its_own() -> None:
    """Probabilities above 0.5: 2, 3 and 0.5, and the same for each position alone."""
    router, x = made("threshold")

    _, mask, balance = router(x, mask=MASK)
    alone = [router(x[:, at : at + 1])[1].item() for at in range(4)]

    assert mask.tolist() == [[True, False, True, True, False]]
    assert alone == [True, False, True, True]
    assert torch.equal(balance, made("top")[0](x, mask=MASK)[2])


def test_top_positions_depend_on_later_ones_and_are_refused_for_decoding() -> None:
    """The help names the choice that decodes; with it there is no finding."""
    [finding] = weft.check(weft.load(SPEC, choose="top"))

    assert finding.code == "D01"
    assert "token_router@1 reads later positions" in finding.problem
    assert "threshold" in finding.help


def test_a_position_that_is_not_chosen_changes_no_other_position() -> None:
    """With a bias of -9 the layers with a router are skipped, whatever their weights are."""
    sizes: dict[str, Any] = {"d_model": 8, "heads": 2, "layers": 2, "vocab": 12}
    model = weft.build(weft.load(SPEC, **sizes), seed=1).eval()
    tokens = torch.randint(12, (2, 6))
    weights = dict(model.named_parameters())
    router = "decoder.0.routed.router.router"
    layer = weights["decoder.0.routed.feed_forward.outer.weight"]

    def logits(bias: float, scale: float) -> torch.Tensor:
        with torch.no_grad():
            weights[f"{router}.weight"].zero_()
            weights[f"{router}.bias"].fill_(bias)
            layer.mul_(scale)
            found: torch.Tensor = model(tokens=tokens)["logits"]
        return found

    assert torch.equal(logits(-9.0, 1.0), logits(-9.0, 3.0))
    assert not torch.allclose(logits(9.0, 1.0), logits(9.0, 3.0))
