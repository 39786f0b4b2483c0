"""What judges the GPU (cuda_cases.check), judged without one: by a stand-in, right or wrong."""

import types

import cuda_cases
import numpy as np
import pytest
import ringside as rs
from dropping import Dropping
from ringside.testing import Case
from ringside.testing.dtypes import round_to

CASE = Case(
    rs.PackedLayout([0, 70, 71, 160], [0, 72, 80, 170]), cp_size=4, num_heads=4, num_kv_heads=2,
    head_dim=16, head_dim_v=8,
)  # fmt: skip


class StandIn(cuda_cases.OnGpu):
    """The reference, its results rounded as a GPU's are."""

    family = "mma"

    def forward(self, plan, *arrays, **options):
        plan._programs[None] = types.SimpleNamespace(family=self.family)
        out, lse = plan.attention(*arrays, **options or cuda_cases.keywords_of(self.options))
        return round_to(out, self.dtype), round_to(lse, "float32")

    def backward(self, plan, *arrays, **options):
        grads = plan.attention_backward(*arrays, **options or cuda_cases.keywords_of(self.options))
        types = [self.dtype] * 3 + ["float32"]
        return tuple(round_to(x, dtype) for x, dtype in zip(grads, types, strict=False))


class LosesATile(StandIn):
    lost = Dropping(2, 3, CASE.plan().steps(3)[2].tiles[1])

    def backward(self, plan, *arrays, **options):
        return super().backward(self.lost.without(plan), *arrays, **options)


class WritesPadding(StandIn):
    def forward(self, plan, *arrays, **options):
        out, lse = super().forward(plan, *arrays, **options)
        out[71] = 1e-12
        return out, lse


class ForgetsTheScale(StandIn):
    def backward(self, plan, *arrays, **options):
        dq, dk, dv = super().backward(plan, *arrays, **options)
        return dq, 1.01 * dk, dv


@pytest.fixture
def gpu(monkeypatch):
    return lambda kind: monkeypatch.setattr(cuda_cases, "OnGpu", kind)


@pytest.mark.parametrize("family", ["float32", "mma"])
@pytest.mark.parametrize("dtype", cuda_cases.DTYPES)
def test_a_right_one_passes(gpu, dtype, family, monkeypatch):
    gpu(StandIn)
    monkeypatch.setattr(StandIn, "family", family)
    cuda_cases.check(CASE, dtype)
    cuda_cases.check(CASE, dtype, sink=np.array([0.5, -1.0, 2.0, 0.0]))
    if family == "float32":
        cuda_cases.check(CASE, dtype, sink=0.25, softcap=2.0)


def test_a_lost_tile_is_named(gpu):
    gpu(LosesATile)
    with pytest.raises(AssertionError) as failure:
        cuda_cases.check(CASE, "float16")
    tile = LosesATile.lost.lost[2]
    place = f"of document {tile.q.seq}"
    assert "first wrong in backward, step 2, rank 3, queries " in str(failure.value)
    assert f"{place}: dq at row {tile.q.pos} {place}" in str(failure.value)


@pytest.mark.parametrize(
    ("kind", "dtype", "where"),
    [(WritesPadding, "bfloat16", "out"), (ForgetsTheScale, "float16", "dk")],
)
def test_what_no_index_is_wrong_for_is_caught_too(gpu, kind, dtype, where):
    gpu(kind)
    with pytest.raises(AssertionError, match=rf"^{where}\["):
        cuda_cases.check(CASE, dtype)


class ForgetsASink(StandIn):
    def forward(self, plan, *arrays, **options):
        kept = {**cuda_cases.keywords_of(self.options), "sink": None}
        return super().forward(plan, *arrays, **kept)


def test_a_sink_is_part_of_what_is_allowed(gpu):
    """Plain arithmetic has it too, or its error would allow everything."""
    gpu(ForgetsASink)
    with pytest.raises(AssertionError, match=r"^out\["):
        cuda_cases.check(CASE, "bfloat16", sink=-1.0)


def test_the_worst_errors_are_kept(gpu):
    gpu(StandIn)
    cuda_cases.check(CASE, "float16")
    cell = cuda_cases.worst["mma float16 zigzag p2p out"]
    assert 0 < cell < 1
