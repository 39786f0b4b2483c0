"""Real code in the ring: torch's SDPA and FlexAttention, JAX's dot_product_attention."""

import functools
import re
import warnings

import numpy as np
import pytest
import ringside as rs
from hypothesis import example, given, settings
from hypothesis import strategies as st
from ringside.testing import Case, Demands, Disagreement, adapters, check_attention, strategies

DTYPES = ["float32", "bfloat16", "float16"]


def cases(dtype, lengths=(0, 1, 3), **how):
    """Few lengths: JAX compiles for each."""
    few = st.lists(st.sampled_from(lengths), min_size=1, max_size=3)
    return strategies.cases(
        layouts_q=strategies.layouts(lengths=few),
        layouts_k=lambda _: st.none(),
        dtypes=st.just(dtype),
        cp_sizes=st.just(1),
        partitions=st.just("zigzag"),
        comms=st.just("p2p"),
        heads=st.sampled_from([(1, 1), (4, 2)]),
        **how,
    )


def skip_where_missing(adapter):
    if adapter.missing is not None:
        pytest.skip(adapter.missing)


def largest_ratio(adapter, strategy, examples, dtype):
    """Of the drawn cases, and of one with rows that see several keys: of one key all are exact."""
    ratios = [0.0]

    @settings(max_examples=examples)
    @given(strategy)
    @example(Case(rs.PackedLayout.from_lengths([3, 0]), dtype=dtype))
    def check(case):
        ratios.append(check_attention(adapter, case).largest_ratio)

    check()
    return max(ratios)


@pytest.mark.parametrize("dtype", DTYPES)
def test_jax_agrees(dtype):
    skip_where_missing(adapters.jax_dot_product)
    lengths = (0, 1, 3) if dtype == "float32" else (0, 3)
    strategy = cases(dtype, lengths, head_dims=st.just(4))
    assert 0 < largest_ratio(adapters.jax_dot_product, strategy, 6, dtype) < 0.9


@pytest.mark.parametrize("dtype", [*DTYPES, "float64"])
def test_torch_sdpa_agrees(dtype):
    skip_where_missing(adapters.torch_sdpa)
    assert 0 < largest_ratio(adapters.torch_sdpa, cases(dtype), 30, dtype) < 0.9


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(
    ("tokens", "heads"), [(24, (4, 1)), (93, (1, 1)), (128, (8, 1)), (256, (4, 2))]
)
def test_torch_sdpa_agrees_where_its_kernel_sums_many_shares(dtype, tokens, heads):
    """Each 32 queries, and each head of a group, round dk and dv once more."""
    skip_where_missing(adapters.torch_sdpa)
    case = Case(
        rs.PackedLayout([0, tokens]),
        mask=rs.Mask.full(),
        num_heads=heads[0],
        num_kv_heads=heads[1],
        head_dim=16,
        head_dim_v=16,
        softmax_scale=1.0,
        dtype=dtype,
    )
    for seed in range(12 if tokens < 100 else 3):
        ratios = check_attention(adapters.torch_sdpa, case.replace(seed=seed)).ratios
        assert all(0.02 < ratio < 0.9 for ratio in ratios.values()), ratios


def test_torch_sdpa_has_no_more_room_where_its_kernel_does_not_round_more():
    demands_for = adapters.torch_sdpa.demands_for
    case = Case(rs.PackedLayout([0, 32]), dtype="bfloat16")
    assert demands_for(case) == demands_for(case.replace(dtype="float32")) == Demands()
    grouped = case.replace(num_heads=2)
    assert demands_for(grouped) == Demands(merges=2, gradients="bfloat16")


def test_torch_flex_attention_agrees():
    skip_where_missing(adapters.torch_flex)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that it is not compiled
        few = cases("float32", head_dims=st.just(4))
        ratio = largest_ratio(adapters.torch_flex, few, 6, "float32")
    assert 0 < ratio < 0.9


def test_jax_itself_gives_a_row_that_sees_nothing_the_mean_of_the_values():
    """Why the adapter sets such rows to 0: without that it is caught."""
    skip_where_missing(adapters.jax_dot_product)

    def bare(q, k, v, *, layout_q, layout_k, mask, softmax_scale):
        import jax

        dense = mask.to_dense(len(q), len(k))[None, None]
        return jax.nn.dot_product_attention(q[None], k[None], v[None], mask=dense)[0]

    layouts = {"layout_k": rs.PackedLayout([0, 1]), "mask": rs.Mask.causal(align="bottom_right")}
    case = Case(rs.PackedLayout([0, 2]), dtype="float32", **layouts)
    check_attention(adapters.jax_dot_product, case)
    with pytest.raises(Disagreement, match="row 0 of document 0") as failure:
        check_attention(adapters.JaxFunction(bare), case)
    assert failure.value.finding.reads == ["read key 0 (weight 1, should be 0)"]


def test_options_are_refused_not_ignored():
    skip_where_missing(adapters.jax_dot_product)
    case = Case(rs.PackedLayout([0, 2]), dtype="float32", sink=1.0, softcap=5.0)
    with pytest.raises(NotImplementedError, match="no sink, softcap here"):
        check_attention(adapters.jax_dot_product, case)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("where", "row", "text"),
    [
        ("forward", slice(1, 2), "k, row 1$"),
        ("outside", None, r"k, row 3 \(outside\)$"),
        ("backward", None, "dout, row 0$"),
    ],
)
def test_a_tensor_that_is_written_to_is_noticed(dtype, where, row, text):
    torch = pytest.importorskip("torch")

    class Kept(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, dout):
            return dout.zero_() if where == "backward" else dout

    def careless(q, k, v, **keywords):
        out = adapters.torch_sdpa.fn(q, k, v, **keywords)
        with torch.no_grad():
            if where == "forward":
                k[row] = 0.0
            if where == "outside":
                torch.as_strided(k, (1,), (1,), k.storage_offset() + k.numel()).zero_()
        return Kept.apply(out)

    with pytest.raises(Disagreement) as failure:
        check_attention(
            adapters.TorchFunction(careless), Case(rs.PackedLayout([0, 3]), dtype=dtype)
        )
    assert re.search("wrote to its input " + text, failure.value.headline)


@pytest.mark.parametrize("wrap", [lambda x: [x], lambda x: x.detach().numpy(), lambda x: None])
def test_what_is_no_tensor_is_named(wrap):
    pytest.importorskip("torch")

    def fn(q, k, v, **keywords):
        return wrap(adapters.torch_sdpa.fn(q, k, v, **keywords))

    with pytest.raises(Disagreement, match=r"returned a \w+; expected a torch.Tensor"):
        check_attention(adapters.TorchFunction(fn), Case(rs.PackedLayout([0, 3]), dtype="float32"))


def test_a_partial_has_the_name_of_its_function():
    assert adapters.TorchFunction(functools.partial(with_sink, None)).name == "with_sink"


def with_sink(arrays, q, k, v, *, layout_q, layout_k, mask, softmax_scale, sink):
    """One document of one head, in torch or JAX."""
    s = softmax_scale * q[:, 0] @ k[:, 0].T
    weights = arrays.exp(s) / (arrays.exp(s).sum(1) + arrays.exp(sink[0]))[:, None]
    return (weights @ v[:, 0])[:, None]


SINK = Case(
    rs.PackedLayout([0, 5]), mask=rs.Mask.full(), dtype="float32", softmax_scale=0.5, sink=0.75
)


@pytest.mark.parametrize("library", ["torch", "jax"])
@pytest.mark.parametrize("sink", [0.75, (0.75,)], ids=["one number", "one a head"])
def test_a_sink_is_differentiated(library, sink):
    arrays = pytest.importorskip("torch" if library == "torch" else "jax.numpy")
    adapter = {"torch": adapters.TorchFunction, "jax": adapters.JaxFunction}[library]
    ratios = check_attention(
        adapter(functools.partial(with_sink, arrays), library), SINK.replace(sink=sink)
    ).ratios
    assert 0 < ratios["dsink"] < 1


def test_a_sink_without_a_gradient_is_wrong_not_missing():
    torch = pytest.importorskip("torch")

    def detached(*qkv, sink, **keywords):
        return with_sink(torch, *qkv, sink=sink.detach(), **keywords)

    with pytest.raises(Disagreement, match=r"dsink is wrong[^$]*got 0, expected"):
        check_attention(adapters.TorchFunction(detached), SINK)


def test_jax_refuses_float64_unless_enabled():
    skip_where_missing(adapters.jax_dot_product)
    jax = pytest.importorskip("jax")
    enabled = jax.config.jax_enable_x64  # other tests of the same process may have enabled it
    jax.config.update("jax_enable_x64", False)
    try:
        with pytest.raises(NotImplementedError, match="jax_enable_x64"):
            check_attention(adapters.jax_dot_product, Case(rs.PackedLayout([0, 2])))
    finally:
        jax.config.update("jax_enable_x64", enabled)


def test_an_absent_library_is_a_refusal_with_a_reason():
    class Absent(adapters.TorchFunction):
        library = "no_such_library"

    fn = Absent(lambda q, k, v: q, "absent")
    assert "no_such_library cannot be imported" in fn.missing
    with pytest.raises(NotImplementedError, match="no_such_library"):
        check_attention(fn, Case(rs.PackedLayout([0, 2])))


def test_the_mask_of_the_pack_is_block_diagonal():
    layout = rs.PackedLayout([0, 1, 3], [0, 2, 4])
    seen = adapters.pack_mask(layout, layout, rs.Mask.causal())
    assert np.argwhere(seen).tolist() == [[0, 0], [2, 2], [3, 2], [3, 3]]
