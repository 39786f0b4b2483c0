"""torch tensors and JAX arrays on the CPU: the same numbers as NumPy's, in the caller's kind."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import ringside as rs
import torch

LAYOUT = rs.PackedLayout([0, 5, 8], [0, 6, 10])  # with padding
PLAN = rs.plan(LAYOUT, cp_size=2, num_heads=4, num_kv_heads=2)
PADDED, VALID = [0, 6, 10], [0, 5, 8]
TORCH = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float32": torch.float32,
    "float64": torch.float64,
}


class Torch:
    @staticmethod
    def of(x, dtype=None):
        x = torch.from_numpy(np.array(x))
        return x.to(TORCH[dtype]) if x.is_floating_point() and dtype else x

    @staticmethod
    def numbers(x):
        assert isinstance(x, torch.Tensor) and x.device.type == "cpu" and not x.requires_grad
        return (x.float() if x.dtype == torch.bfloat16 else x).numpy()

    @staticmethod
    def name(x):
        return str(x.dtype).removeprefix("torch.")


class Jax:
    @staticmethod
    def of(x, dtype=None):
        x = np.asarray(x)
        return jnp.asarray(x, dtype if np.issubdtype(x.dtype, np.floating) else None)

    @staticmethod
    def numbers(x):
        assert isinstance(x, jax.Array)
        return np.asarray(x, np.float32 if x.dtype.name == "bfloat16" else None)

    @staticmethod
    def name(x):
        return x.dtype.name


KINDS = [(Torch, dtype) for dtype in TORCH] + [(Jax, d) for d in ("bfloat16", "float16", "float32")]
EACH_KIND = pytest.mark.parametrize(
    ("kind", "dtype"), KINDS, ids=[f"{kind.__name__}-{dtype}" for kind, dtype in KINDS]
)


def arrays(seed=0):
    """q, k, v and dout that every dtype here holds as they are, NaN in padding."""
    rng = np.random.default_rng(seed)
    shapes = [(10, 4, 8), (10, 2, 8), (10, 2, 4), (10, 4, 4)]
    made = [rng.integers(-16, 17, shape) / 16 for shape in shapes]
    for x in made:
        x[[5, 9]] = np.nan
    return made


def rounded(x, kind, dtype):
    """As the kind holds x in that dtype; integers as they are."""
    return kind.numbers(kind.of(x, dtype))


def statistic(dtype):
    return "float64" if dtype == "float64" else "float32"


def agrees(got, wanted, kind, dtype):
    """Results of the kind, with dtypes as asked, and the numbers of `wanted` rounded to them."""
    assert kind.name(got) == dtype
    np.testing.assert_array_equal(kind.numbers(got), rounded(wanted, kind, dtype))


@EACH_KIND
def test_attention_answers_in_kind(kind, dtype):
    q, k, v, dout = arrays()
    sink = np.array([0.5, 0.25, -1.0, 2.0])
    theirs = [kind.of(x, dtype) for x in (q, k, v)]
    calls = {
        "definition": (lambda *x, **kw: rs.attention(*x, LAYOUT, **kw)),
        "plan": PLAN.attention,
    }
    for call in calls.values():
        wanted = call(q, k, v, sink=sink, return_max_logit=True)
        for sinks in ({"sink": kind.of(sink, "float32")}, {"options": rs.Options(sink=sink)}):
            got = call(*theirs, **sinks, return_max_logit=True)
            for x, y, name in zip(got, wanted, (dtype, *[statistic(dtype)] * 2), strict=True):
                agrees(x, y, kind, name)
    out, lse = (rounded(x, kind, dtype).astype(float) for x in PLAN.attention(q, k, v, sink=sink))
    saved = (dout, q, k, v, out, lse)
    wanted = PLAN.attention_backward(*saved, sink=sink)
    held = [kind.of(x, dtype) for x in saved]
    got = PLAN.attention_backward(*held, sink=kind.of(sink, "float32"))
    for x, y, name in zip(got, wanted, (*[dtype] * 3, statistic(dtype)), strict=True):
        agrees(x, y, kind, name)
    defined = rs.attention_backward(*held, LAYOUT, sink=sink)
    for x, y in zip(defined[:3], rs.attention_backward(*saved, LAYOUT, sink=sink), strict=False):
        agrees(x, y, kind, dtype)


@EACH_KIND
def test_rows_move_in_kind(kind, dtype):
    x = arrays()[0]
    theirs = kind.of(x, dtype)
    parts = [PLAN.shard(x, rank) for rank in range(2)]
    shards = [PLAN.shard(theirs, rank) for rank in range(2)]
    for got, wanted in zip(shards, parts, strict=True):
        agrees(got, wanted, kind, dtype)
    agrees(PLAN.unshard(shards), PLAN.unshard(parts), kind, dtype)
    agrees(PLAN.roll(theirs, 1, fill_value=0.5), PLAN.roll(x, 1, fill_value=0.5), kind, dtype)
    for got, wanted in zip(
        PLAN.exchange(1, "kv", [y[:, :2] for y in shards]),
        PLAN.exchange(1, "kv", [y[:, :2] for y in parts]),
        strict=True,
    ):
        agrees(got, wanted, kind, dtype)
    for got, wanted in zip(LAYOUT.unpack(theirs), LAYOUT.unpack(x), strict=True):
        agrees(got, wanted, kind, dtype)
    agrees(LAYOUT.pack(LAYOUT.unpack(theirs)), LAYOUT.pack(LAYOUT.unpack(x)), kind, dtype)
    agrees(LAYOUT.roll(theirs), LAYOUT.roll(x), kind, dtype)
    for move in (
        rs.thd.sequence_order_to_cp_rank_order,
        rs.thd.cp_rank_order_to_sequence_order,
    ):
        agrees(move(theirs, kind.of(PADDED), 2), move(x, PADDED, 2), kind, dtype)


@pytest.mark.filterwarnings("error:The given NumPy array is not writable")
@pytest.mark.parametrize("kind", [Torch, Jax])
def test_integers_come_in_kind(kind):
    tokens = kind.of(np.arange(8, dtype=np.int32))
    batch = rs.thd.pad_to_multiple(tokens, None, kind.of(VALID), 4, pad_token=-1)
    wanted = rs.thd.pad_to_multiple(np.arange(8, dtype=np.int32), None, VALID, 4, pad_token=-1)
    assert batch.labels is None and type(batch) is type(wanted)
    for got, want in ((batch.tokens, wanted.tokens), (batch.position_ids, wanted.position_ids)):
        agrees(got, want, kind, "int32")
    agrees(
        rs.thd.partition_indices(kind.of(PADDED), 2, 1),
        rs.thd.partition_indices(PADDED, 2, 1),
        kind,
        "int32",
    )
    for got, want in zip(
        rs.thd.chunkify(kind.of(VALID), kind.of(PADDED), 2),
        rs.thd.chunkify(VALID, PADDED, 2),
        strict=True,
    ):
        agrees(got, want, kind, "int32")
    ids = PLAN.shard(kind.of(np.arange(10, dtype=np.int32)), 1)
    agrees(ids, PLAN.shard(np.arange(10, dtype=np.int32), 1), kind, "int32")


@pytest.mark.parametrize("dtype", TORCH)
def test_torch_memory_is_written_in_place(dtype):
    segments = [(0, 1, 4, 1, 3)]
    x = Torch.of(np.arange(8.0).reshape(4, 2) / 4, dtype)
    out = torch.full((8, 2), torch.nan, dtype=TORCH[dtype])
    rs.thd.copy_rows(out, x, torch.tensor(segments))
    assert torch.equal(out[4:7], x[:3]) and out[[0, 1, 2, 3, 7]].isnan().all()
    out = torch.full((10, 2), torch.nan, dtype=TORCH[dtype])
    step = torch.arange(20, dtype=TORCH[dtype]).reshape(10, 2)
    rs.thd.copy_valid_tokens(out, step, torch.tensor(PADDED), torch.tensor(VALID))
    valid = [0, 1, 2, 3, 4, 6, 7, 8]
    assert torch.equal(out[valid], step[valid]) and out[[5, 9]].isnan().all()
    if dtype != "float64":
        total = torch.ones(8, 2)
        rs.thd.add_rows(total, x, segments)
        assert torch.equal(total[4:7], 1 + x[:3].float()) and (total[:4] == 1).all()


def test_what_cannot_be_written_or_mixed_is_refused():
    half, short = torch.zeros(4, 2, dtype=torch.bfloat16), torch.zeros(4, 2, dtype=torch.int16)
    segments = [(0, 1, 0, 1, 2)]
    with pytest.raises(TypeError, match=r"x has dtype torch.int16 and out torch.bfloat16"):
        rs.thd.copy_rows(half, short, segments)
    with pytest.raises(TypeError, match=r"accumulator has dtype torch.bfloat16; expected float32"):
        rs.thd.add_rows(half, half.clone(), segments)
    with pytest.raises(TypeError, match=r"out is a jax.*; expected an array, which is written"):
        rs.thd.copy_rows(jnp.zeros((4, 2)), jnp.zeros((4, 2)), segments)
    assert not half.any()
    with pytest.raises(rs.Unsupported, match=r"inside jax.jit.*Nearest supported"):
        jax.jit(lambda q: rs.attention(q, q, q, LAYOUT)[0])(jnp.zeros((10, 1, 8)))


def test_a_tensor_on_the_cpu_is_told_what_the_cuda_backend_needs():
    q = torch.zeros(10, 4, 8)
    with pytest.raises((TypeError, rs.Unsupported), match=r"tensor on the CPU|cannot run"):
        PLAN.attention(q, q[:, :2], q[:, :2], backend="cuda")


def test_pieces_go_through_a_buffer_in_kind():
    layout = rs.PackedLayout([0, 4])
    q = torch.randn(2, 1, 8, dtype=torch.bfloat16)
    ours, theirs = rs.MicroSequenceBuffer(layout, [0, 2, 4]), []
    plain, wanted = rs.MicroSequenceBuffer(layout, [0, 2, 4]), []
    for i in (0, 1):
        theirs.append(ours.forward(i, q, q, q))
        wanted.append(plain.forward(i, *[q.float().numpy()] * 3))
        agrees(theirs[i][0], wanted[i][0], Torch, "bfloat16")
    for i in (1, 0):
        out, lse = (Torch.numbers(x) for x in theirs[i])
        got = ours.backward(i, q, q, *theirs[i])
        want = plain.backward(i, *[q.float().numpy()] * 2, out, lse)
        for x, y in zip(got, want, strict=True):
            agrees(x, y, Torch, "bfloat16")


@EACH_KIND
def test_flash_attention_answers_in_kind(kind, dtype):
    q, k, v, _ = (np.nan_to_num(x) for x in arrays())
    offsets = np.array([0, 6, 10], np.int32)
    rest = {"causal": True, "return_attn_probs": True}
    theirs = [kind.of(x, dtype) for x in (q, k, v)]
    out, lse = rs.flash_attn_varlen_func(*theirs, *[kind.of(offsets)] * 2, 6, 6, **rest)
    wanted = rs.flash_attn_varlen_func(q, k, v, offsets, offsets, 6, 6, **rest)
    agrees(out, wanted[0], kind, dtype)
    assert kind.name(lse) == statistic(dtype)
    np.testing.assert_allclose(kind.numbers(lse), wanted[1], rtol=1e-6)


@EACH_KIND
@pytest.mark.parametrize("ranks", [1, 2])
def test_ranks_of_a_process_answer_in_kind(kind, dtype, ranks):
    plan = rs.plan(LAYOUT, cp_size=ranks, num_heads=4, num_kv_heads=2)
    q, k, v, dout = arrays()
    sides = {"q": (q, dout), "k": (k, v)}
    (q_r, dout_r), (k_r, v_r) = (
        [[plan.shard(x, r, side=side) for r in range(ranks)] for x in given]
        for side, given in sides.items()
    )

    def own(parts):
        theirs = [kind.of(x, dtype) for x in parts]
        return theirs if ranks > 1 else theirs[0]

    with rs.init(ranks_per_process=ranks) as group:
        out, lse = plan.attention_rank(own(q_r), own(k_r), own(v_r), group=group)
        gradients = plan.attention_backward_rank(
            own(dout_r), own(q_r), own(k_r), own(v_r), out, lse, group=group
        )
    wanted, wanted_lse = plan.attention(q, k, v)
    for r, (x, y) in enumerate(zip(*([z] if ranks == 1 else z for z in (out, lse)), strict=True)):
        agrees(x, plan.shard(wanted, r), kind, dtype)
        agrees(y, plan.shard(wanted_lse.T, r).T, kind, statistic(dtype))
    for parts in gradients:
        for x in [parts] if ranks == 1 else parts:
            assert kind.name(x) == dtype
