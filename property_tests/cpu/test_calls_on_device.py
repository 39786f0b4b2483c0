"""What stands between a call and kernels hands on all it got, for both kinds of plan."""

import numpy as np
import pytest
import ringside as rs
from assertions import noted
from device_plans import takes
from hypothesis import HealthCheck, given, settings
from played_cuda import play
from ringside._arrays import programs as _programs
from ringside.testing import Case, strategies

CASES = noted(strategies.cases(options=strategies.options))


@pytest.fixture
def played(monkeypatch):
    yield play(monkeypatch)
    _programs._plain_options.cache_clear()


def device_plan(case):
    """Lengths are given later; room for the case alone."""
    plan = rs.DevicePlan(
        max_sequences=case.layout_q.num_sequences, num_rows_q=case.layout_q.num_rows,
        num_rows_k=case.keys.num_rows, mask=case.mask, cp_size=case.cp_size,
        partition=case.partition, comm=case.comm, a2a_size=case.a2a_size,
        num_heads=case.num_heads, num_kv_heads=case.num_kv_heads,
    )  # fmt: skip
    layouts = (case.layout_q, case.keys)
    plan.set_lengths(*(x for y in layouts for x in (y.cu_seqlens, y.cu_seqlens_padded)))
    return plan


def close(got, want):
    """lse and what is per head are float32 on a device."""
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


reuse = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@reuse
@given(case=CASES)
def test_both_kinds_of_plan_hand_on_options_and_ask_for_the_largest_logit(played, case):
    arrays, plan = case.arrays(), case.plan()
    q, k, v, dout = arrays
    asked = {"return_max_logit": True}
    wanted = plan.attention(q, k, v, **asked, **case.options)
    grads = plan.attention_backward(dout, q, k, v, *wanted[:2], **case.options)
    layer = {"options": rs.Options(**case.options)}
    runs = [(plan, {"backend": "cuda"})]
    if takes(case):
        runs.append((device_plan(case), {}))
    for ran, how in runs:
        for spelled in (case.options, layer):
            close(ran.attention(q, k, v, **how, **asked, **spelled), wanted)
            close(ran.attention(q, k, v, **how, **spelled), wanted[:2])
            given_back = (dout, q, k, v, *wanted[:2])
            close(ran.attention_backward(*given_back, **how, **spelled), grads)


@pytest.mark.parametrize("qkv_format", ["bshd", "sbhd"])
def test_a_dense_batch_comes_back_dense(played, qkv_format):
    rng = np.random.default_rng(0)
    q, k, v, dout = rng.normal(size=(4, 2, 3, 1, 4))  # [batch, seqlen, heads, dim]
    if qkv_format == "sbhd":
        q, k, v, dout = (x.swapaxes(0, 1) for x in (q, k, v, dout))
    case, dense = Case(rs.PackedLayout([0, 3, 6]), cp_size=2), {"qkv_format": qkv_format}
    wanted = rs.attention(q, k, v, **dense)
    grads = rs.attention_backward(dout, q, k, v, *wanted, **dense)
    for plan, how in ((case.plan(), {"backend": "cuda"}), (device_plan(case), {})):
        close(plan.attention(q, k, v, **dense, **how), wanted)
        close(plan.attention_backward(dout, q, k, v, *wanted, **dense, **how), grads)


def test_a_piece_of_a_pack_drops_what_the_whole_drops(played):
    layout = rs.PackedLayout([0, 5, 12])
    buffer = rs.MicroSequenceBuffer(layout, [0, 7, 12])
    plan, (q, k, v, _) = buffer.plans[1], Case(*buffer.layouts(1)).arrays()
    options = {"dropout_p": 0.5, "dropout_seed": 1}
    close(plan.attention(q, k, v, backend="cuda", **options), plan.attention(q, k, v, **options))


def test_programs_are_made_once_for_what_they_are_made_for(played):
    case = Case(rs.PackedLayout([0, 5]))
    plan, (q, k, v, _) = device_plan(case), case.arrays()
    before = played.made
    for softcap in (1.0, 2.0):
        for scale in (0.5, np.float32(0.5), np.array(0.5)):
            plan.attention(q, k, v, softcap=softcap, softmax_scale=scale)
    assert played.made == before + 1
    plan.attention(q, k, v, softmax_scale=0.25)
    assert played.made == before + 2


def test_what_a_device_plan_does_not_know_is_refused(played):
    case = Case(rs.PackedLayout([0, 5]))
    plan, (q, k, v, _) = device_plan(case), case.arrays()
    with pytest.raises(TypeError, match=r"DevicePlan\.attention\(\) got .* 'backend'.*Leave b"):
        plan.attention(q, k, v, backend="cuda")
    with pytest.raises(ValueError, match='qkv_format="hbsd" is unknown'):
        plan.attention(q, k, v, qkv_format="hbsd")
    with pytest.raises(TypeError, match="return_max_logit is an int"):
        plan.attention(q, k, v, return_max_logit=1)
    with pytest.raises(rs.Unsupported, match="bias adds"):
        plan.attention(q, k, v, bias=q)
