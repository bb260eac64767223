"""Triton kernels without a GPU: compiled to PTX for compute capability 9.0."""

from __future__ import annotations

import pytest

triton = pytest.importorskip("triton")

from triton.backends.compiler import GPUTarget  # noqa: E402 - they need Triton
from triton.compiler import ASTSource  # noqa: E402
from weft.blocks.kernels.losses import triton_softmax as kernel  # noqa: E402

pytestmark = pytest.mark.rehearsal


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_the_kernel_compiles_for_a_gpu_and_spills_no_registers(dtype: str) -> None:
    """A program that spills stores its registers in local memory, which PTX declares."""
    types = {"target_ptr": "*i64", "logsumexp_ptr": "*fp32", "right_ptr": "*fp32"}
    types |= {"score_ptr": f"*{dtype}", "vocabulary": "i32", "stride": "i32", "shift": "fp32"}
    constants = {"LOW": kernel.LOWEST, "GRADIENTS": True, "SIZE": kernel.BLOCK}
    source = ASTSource(
        fn=kernel.rows_kernel,
        signature={name: types.get(name, "constexpr") for name in kernel.rows_kernel.arg_names},
        constexprs=constants,
    )

    made = triton.compile(
        source, target=GPUTarget("cuda", 90, 32), options={"num_warps": kernel.WARPS}
    )

    code = made.asm["ptx"]
    assert ".target sm_90a" in code
    assert code.count("ld.global") > 0
    assert ".local" not in code
