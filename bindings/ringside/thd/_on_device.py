"""ringside.thd on device arrays: makes the results; ringside._cuda_core launches the kernels.

Every function is asynchronous on the current stream. Nothing is read back, so what the arrays of
offsets hold is not checked: kernels stay inside all arrays whatever it is, and
ringside.thd.check_offsets looks at it on demand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ringside import _core
from ringside._arguments.gradients import asks_for_gradient
from ringside._arrays.layout import DeviceLayout
from ringside._core import arguments
from ringside.thd._device import DeviceContext

# --- rows


def reorder(x: Any, cu_seqlens_padded: Any, cp_size: int, *, to_ranks: bool) -> Any:
    """One array, or a list or tuple of them in one launch."""
    arrays = list(x) if isinstance(x, list | tuple) else [x]
    if asks_for_gradient(arrays):
        from ringside.thd._torch_reorder import reordered

        results = reordered(reorder, arrays, cu_seqlens_padded, cp_size, to_ranks=to_ranks)
        return type(x)(results) if isinstance(x, list | tuple) else results[0]
    context = DeviceContext(arrays[0])
    offsets = context.describe("cu_seqlens_padded", cu_seqlens_padded)
    given = [context.describe("x", a) for a in arrays]
    results = [context.empty_like(a) for a in arrays]
    batch = max(int(cu_seqlens_padded.shape[0]) - 1, 0) if cu_seqlens_padded.ndim else 0
    table = context.integers(context.core.table_size(cp_size, batch))
    context.core.reorder(
        given,
        [context.describe("the result", r) for r in results],
        offsets,
        cp_size,
        to_ranks,
        context.address(table),
        context.handle,
    )
    return type(x)(results) if isinstance(x, list | tuple) else results[0]


def copy_valid_tokens(out: Any, step_out: Any, cu_seqlens_padded: Any, cu_seqlens: Any) -> None:
    """As ringside.thd.copy_valid_tokens."""
    context = DeviceContext(out)
    context.core.copy_valid_tokens(
        context.describe("out", out),
        context.describe("step_out", step_out),
        context.describe("cu_seqlens_padded", cu_seqlens_padded),
        context.describe("cu_seqlens", cu_seqlens),
        context.handle,
    )


def copy_rows(out: Any, x: Any, segments: Any) -> None:
    """As ringside.thd.copy_rows."""
    _by_segments("copy_rows", out, x, segments)


def add_rows(accumulator: Any, x: Any, segments: Any) -> None:
    """As ringside.thd.add_rows."""
    _by_segments("add_rows", accumulator, x, segments)


def _by_segments(name: str, out: Any, x: Any, segments: Any) -> None:
    context = DeviceContext(out)
    given = [context.describe(n, a) for n, a in (("out", out), ("x", x), ("segments", segments))]
    table = context.integers(int(segments.shape[0]) + 1 if segments.ndim else 1, "int64")
    getattr(context.core, name)(*given, context.address(table), context.handle)


class DeviceIndices(NamedTuple):
    """What partition_indices returns for offsets on a device.

    Attributes:
        rows: [capacity] int32 on the device; -1 behind the rank's last row.
        count: [1] int32 on the device, the rank's rows; more than capacity if some are missing.
    """

    rows: Any
    count: Any


def partition_indices(
    cu_seqlens_padded: Any, cp_size: int, rank: int, num_rows: int | None, capacity: int | None
) -> DeviceIndices:
    """As ringside.thd.partition_indices."""
    layout = DeviceLayout(cu_seqlens_padded, None, _known(num_rows))
    context = DeviceContext(cu_seqlens_padded)
    room = _capacity(capacity, _most_local_rows(layout, cp_size))
    found = DeviceIndices(context.integers(room), context.integers(1))
    workspace = context.workspace()
    context.core.indices(
        context.describe("cu_seqlens_padded", cu_seqlens_padded),
        layout.num_rows,
        context.core.CpRank(cp_size, rank),
        [context.describe("the result", a) for a in found],
        context.address(workspace),
        context.handle,
    )
    return found


# --- chunks


class DevicePieces(NamedTuple):
    """What chunkify and chunkify_p2p return for offsets on a device.

    Attributes:
        cu_seqlens, cu_seqlens_padded: [capacity+1] int32 on the device; empty pieces at the end of
            the rows behind the last one.
        count: [1] int32 on the device, the pieces; more than capacity if some are missing.
    """

    cu_seqlens: Any
    cu_seqlens_padded: Any
    count: Any


def pieces(
    layout: DeviceLayout, chunk_size: int, cp_rank: tuple[int, int] | None, capacity: int | None
) -> DevicePieces:
    """Of a rank's rows, or of all."""
    context = DeviceContext(layout.cu_seqlens)
    cp = None if cp_rank is None else context.core.CpRank(*cp_rank)
    rows = layout.num_rows if cp_rank is None else _most_local_rows(layout, cp_rank[0])
    room = _capacity(capacity, context.core.most_pieces(layout.batch, rows, chunk_size))
    found = DevicePieces(
        context.integers(room + 1), context.integers(room + 1), context.integers(1)
    )
    workspace = context.workspace()
    context.core.pieces(
        _describe(context, layout),
        chunk_size,
        cp,
        [context.describe("the result", a) for a in found],
        context.address(workspace),
        context.handle,
    )
    return found


def pairs(
    side: str, layout: DeviceLayout, chunk_size: int, cp_rank: tuple[int, int], kv_rank: int
) -> list[Any]:
    """The four arrays of PiecePairs, for side "below" or "above"."""
    context = DeviceContext(layout.cu_seqlens)
    found = [context.integers(layout.batch + 1) for _ in range(4)]
    workspace = context.workspace()
    getattr(context.core, f"pairs_{side}_diagonal")(
        _describe(context, layout),
        chunk_size,
        context.core.CpRank(*cp_rank),
        kv_rank,
        [context.describe("the result", a) for a in found],
        context.address(workspace),
        context.handle,
    )
    return found


# --- steps

ARRAYS_OF_STEP = (  # in the order of the C++ half; True: one longer than the capacity
    ("sequence", False),
    ("cu_seqlens_q", True),
    ("cu_seqlens_q_padded", True),
    ("cu_seqlens_kv", True),
    ("cu_seqlens_kv_padded", True),
    ("seqused_q", False),
    ("seqused_k", False),
    ("window_left", False),
    ("window_right", False),
)


def all_gather_steps(
    layout: DeviceLayout,
    cp_rank: tuple[int, int],
    mask: _core.Mask,
    layout_k: DeviceLayout | None,
    capacity: int | None,
) -> list[dict[str, Any]]:
    """The fields of both StepMetadata."""
    context = DeviceContext(layout.cu_seqlens)
    layouts = _layouts(context, layout, layout_k)
    step = context.core.Step.all_gather(layouts, mask, context.core.CpRank(*cp_rank))
    chunk = -(-layout.longest // (2 * cp_rank[0]))
    longest = {"max_seqlen_q": chunk, "max_seqlen_kv": (layout_k or layout).longest}
    steps = _write_steps(context, step, 2, layout, cp_rank[0], capacity)
    names = ("first_half", "second_half")
    return [
        {"section": name, "kv_rank": None, **arrays, **longest}
        for name, arrays in zip(names, steps, strict=True)
    ]


def p2p_step(
    layout: DeviceLayout,
    cp_rank: tuple[int, int],
    step: int,
    mask: _core.Mask,
    layout_k: DeviceLayout | None,
    capacity: int | None,
) -> dict[str, Any]:
    """The fields of StepMetadata."""
    context = DeviceContext(layout.cu_seqlens)
    layouts = _layouts(context, layout, layout_k)
    of_ring = context.core.Step.p2p(layouts, mask, context.core.CpRank(*cp_rank), step)
    (arrays,) = _write_steps(context, of_ring, 1, layout, cp_rank[0], capacity)
    both = [2 * -(-x.longest // (2 * cp_rank[0])) for x in (layout, layout_k or layout)]
    longest = {"max_seqlen_q": both[0], "max_seqlen_kv": both[1]}
    return {"section": of_ring.section, "kv_rank": of_ring.kv_rank, **arrays, **longest}


def _layouts(context: DeviceContext, layout: DeviceLayout, layout_k: DeviceLayout | None) -> Any:
    q = _describe(context, layout)
    if layout_k is None:
        return context.core.Layouts(q, q, True)
    if not isinstance(layout_k, DeviceLayout):
        raise TypeError("layout_k is not a DeviceLayout, but layout is; expected two of a kind")
    return context.core.Layouts(q, _describe(context, layout_k, " of layout_k"), False)


def _write_steps(
    context: DeviceContext,
    step: Any,
    count: int,
    layout: DeviceLayout,
    cp_size: int,
    capacity: int | None,
) -> Sequence[dict[str, Any]]:
    room = _capacity(capacity, step.most_entries(_most_local_rows(layout, cp_size)))
    steps = [
        {name: context.integers(room + longer) for name, longer in ARRAYS_OF_STEP}
        | {"count": context.integers(1)}
        for _ in range(count)
    ]
    workspace = context.workspace()
    context.core.steps(
        step,
        [[context.describe("the result", a) for a in arrays.values()] for arrays in steps],
        context.address(workspace),
        context.handle,
    )
    return steps


# --- sizes


def _known(num_rows: int | None) -> int:
    if num_rows is None:
        raise _core.InvalidArgument(
            "num_rows is missing; expected the rows of the packed array, which offsets on a device "
            "do not tell without waiting for it. Pass num_rows=x.shape[0]"
        )
    return arguments.integer(num_rows, "num_rows")


def _capacity(given: int | None, most: int) -> int:
    if given is not None and arguments.integer(given, "capacity") < 0:
        raise _core.InvalidArgument(f"capacity={given}; expected at least 0. Leave it out: {most}")
    return most if given is None else given


def _most_local_rows(layout: DeviceLayout, cp_size: int) -> int:
    """No rank has more: each of its two chunks of a sequence is rounded up at most."""
    ranks = max(arguments.int32(cp_size, "cp_size"), 1)
    return min(layout.num_rows, layout.num_rows // ranks + 2 * layout.batch)


# --- layouts


def _describe(context: DeviceContext, layout: DeviceLayout, whose: str = "") -> Any:
    return context.core.Layout(
        context.describe(f"cu_seqlens{whose}", layout.cu_seqlens),
        context.describe(f"cu_seqlens_padded{whose}", layout.cu_seqlens_padded),
        layout.num_rows,
    )


def layout_of(cu_seqlens: Any, cu_seqlens_padded: Any, num_rows: int | None) -> DeviceLayout:
    """Of functions that take offsets, not layouts."""
    return DeviceLayout(cu_seqlens, cu_seqlens_padded, _known(num_rows))
