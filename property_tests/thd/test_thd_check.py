"""check_step_metadata: whose metadata are right, and which pairs others miss or have too many."""

import copy
from collections import Counter

import numpy as np
import pytest
import ringside as rs
from hypothesis import given, settings
from hypothesis import strategies as st
from ringside import thd
from thd_cases import (
    cp_ranks,
    global_tokens,
    layout_of,
    layouts,
    local_tokens,
    masks,
    pairs_of_entry,
)

TWELVE = layout_of([7, 5], [1, 3])


def ours(layout, cp_size, rank, mask, comm, layout_k=None):
    if comm == "all_gather":
        return thd.all_gather_step_metadata(layout, cp_size, rank, mask, layout_k=layout_k)
    return [
        thd.p2p_step_metadata(layout, cp_size, rank, i, mask, layout_k=layout_k)
        for i in range(cp_size)
    ]


def in_their_words(step):
    """A StepMetadata with one window for all, as Transformer Engine passes it."""
    names = ("cu_seqlens_q", "cu_seqlens_kv", "cu_seqlens_q_padded", "cu_seqlens_kv_padded")
    words = {name: getattr(step, name).tolist() for name in names}
    return words | {"attn_mask_type": "padding", "window_size": step.window_size}


def read_literally(step):
    """The pairs of a mapping, entry by entry, from Transformer Engine's words alone."""
    kind, (left, right) = step["attn_mask_type"], step["window_size"]
    for b in range(len(step["cu_seqlens_q"]) - 1):
        sq = step["cu_seqlens_q"][b + 1] - step["cu_seqlens_q"][b]
        sk = step["cu_seqlens_kv"][b + 1] - step["cu_seqlens_kv"][b]
        shift = 0 if kind == "padding_causal" else sk - sq
        for i in range(sq):
            for j in range(sk):
                hidden = left >= 0 and j < i + shift - left
                hidden |= right >= 0 and j > i + shift + right
                hidden |= "causal" in kind and j > i + shift
                if not hidden:
                    yield step["cu_seqlens_q_padded"][b] + i, step["cu_seqlens_kv_padded"][b] + j


def wanted(layout, cp_size, rank, mask):
    return {
        (q, (s, k))
        for q in local_tokens(layout, cp_size, rank)
        for s in [q[0]]
        for k in range(int(layout.lengths[s]))
        if q[1] < layout.lengths[s]
        and mask.allows(q[1], k, int(layout.lengths[s]), int(layout.lengths[s]))
    }


@settings(max_examples=25)
@given(layouts(), cp_ranks(), masks(), st.sampled_from(["all_gather", "p2p"]))
def test_ours_mean_the_pairs_of_the_mask(layout, cp_rank, mask, comm):
    steps = ours(layout, *cp_rank, mask, comm)
    report = thd.check_step_metadata(steps, layout, *cp_rank, mask, comm=comm)
    assert report, report
    assert report.pairs == len(wanted(layout, *cp_rank, mask))
    assert (
        str(report) == f"rank {cp_rank[1]} of {cp_rank[0]}: the {report.pairs:,} pairs of the mask"
    )


@settings(max_examples=25)
@given(layouts(batch=2), layouts(batch=2), cp_ranks(), masks())
def test_ours_do_for_keys_of_other_lengths(layout, layout_k, cp_rank, mask):
    for comm in ("all_gather", "p2p"):
        steps = ours(layout, *cp_rank, mask, comm, layout_k)
        assert thd.check_step_metadata(steps, layout, *cp_rank, mask, layout_k=layout_k, comm=comm)


@settings(max_examples=25)
@given(layouts(), cp_ranks(), masks(), st.sampled_from(["all_gather", "p2p"]))
def test_pairs_are_what_a_kernel_would_compute(layout, cp_rank, mask, comm):
    for step in ours(layout, *cp_rank, mask, comm):
        pairs = step.pairs()
        assert pairs.dtype == np.int32 and pairs.shape == (len(pairs), 2)
        want = [pair for b in range(len(step.sequence)) for pair in pairs_of_entry(step, b)]
        assert [tuple(pair) for pair in pairs.tolist()] == want


MOST = 1_000  # pairs of a kind that a report lists


@settings(max_examples=25)
@given(layouts(batch=2), cp_ranks(), masks(), st.data())
def test_wrong_metadata_are_told_pair_by_pair(layout, cp_rank, mask, data):
    kinds = st.sampled_from(["padding", "padding_causal", "padding_causal_bottom_right"])
    rows_q, rows_k = len(local_tokens(layout, *cp_rank)), layout.num_rows
    steps = []
    for _ in range(data.draw(st.integers(0, 2))):
        step = {"attn_mask_type": data.draw(kinds)}
        step["window_size"] = data.draw(st.tuples(st.integers(-1, 9), st.integers(-1, 9)))
        for name, rows in (("q", rows_q), ("kv", rows_k)):
            offsets = sorted(data.draw(st.lists(st.integers(0, rows), min_size=2, max_size=2)))
            step[f"cu_seqlens_{name}_padded"] = [0, *offsets]
            used = [data.draw(st.integers(0, rows - at)) for at in [0, offsets[0]]]
            step[f"cu_seqlens_{name}"] = [0, used[0], sum(used)]
        steps.append(step)
    report = thd.check_step_metadata(steps, layout, *cp_rank, mask)

    q_tokens, k_tokens = local_tokens(layout, *cp_rank), global_tokens(layout)
    meant = Counter((q_tokens[q], k_tokens[k]) for step in steps for q, k in read_literally(step))
    want = wanted(layout, *cp_rank, mask)
    missing = sorted((q[0], q[1], k[1]) for q, k in want - set(meant))
    listed = [tuple(pair) for pair in report.missing.tolist()]
    assert len({*listed}) == len(listed) == min(len(missing), MOST) and {*listed} <= {*missing}
    assert report.num_missing == len(missing)
    surplus = {(*q, *k): (q, k) in want for q, k in meant if meant[q, k] > ((q, k) in want)}
    found = [tuple(pair) for pair in report.surplus.tolist()]
    assert len({*found}) == len(found) == min(len(surplus), MOST)
    assert {*zip(found, report.repeated.tolist(), strict=True)} <= {*surplus.items()}
    assert report.num_surplus == sum(meant.values()) - len(set(meant) & want)
    assert bool(report) == (set(meant) == want and report.num_surplus == 0)


@settings(max_examples=25)
@given(layouts(), cp_ranks(), st.sampled_from([rs.Mask.full(), rs.Mask.causal()]))
def test_metadata_in_transformer_engines_words_are_read(layout, cp_rank, mask):
    steps = [in_their_words(step) for step in ours(layout, *cp_rank, mask, "all_gather")]
    assert thd.check_step_metadata(steps, layout, *cp_rank, mask)


def test_a_scalar_window_is_caught_where_a_document_ends_inside_it():
    """One window for all, that of the longest document, as the peer passes it."""
    layout = rs.PackedLayout.from_lengths([6, 12], pad_to_multiple_of=4)
    mask = rs.Mask.sliding_window(-1, 3)
    step, other = ours(layout, 2, 1, mask, "all_gather")
    longest = step.seqused_k.argmax()
    scalar = in_their_words(step)
    scalar["window_size"] = (-1, int(step.window_right[longest]))
    assert step.window_size is None and step.window_right.min() < step.window_right[longest]
    report = thd.check_step_metadata([scalar, other], layout, 2, 1, mask)
    assert report.num_surplus + report.num_missing > 0
    assert set(report.missing[:, 0].tolist() + report.surplus[:, 0].tolist()) == {0}


def test_tokens_dropped_by_a_division_are_named():
    """Valid lengths divided by the ranks: 7 // 2 leaves the last token to nobody."""
    dropped = {
        "cu_seqlens_q": [0, 3],
        "cu_seqlens_kv": [0, 7],
        "cu_seqlens_q_padded": [0, 4],
        "attn_mask_type": "padding",
    }
    layout = layout_of([7], [1])
    report = thd.check_step_metadata([dropped], layout, 2, 0, rs.Mask.full())
    assert report.num_missing == 0 and report  # rank 0 owns positions 0, 1, 6 and padding
    dropped["cu_seqlens_q"] = [0, 2]
    report = thd.check_step_metadata([dropped], layout, 2, 0, rs.Mask.full())
    assert report.missing.tolist() == [[0, 6, k] for k in range(7)]
    assert str(report).endswith("missing: sequence 0, query 6 does not see key 0")


def test_a_pair_meant_twice_and_one_of_another_document_are_too_many():
    steps = ours(TWELVE, 1, 0, rs.Mask.full(), "all_gather")
    twice = thd.check_step_metadata([*steps, steps[0]], TWELVE, 1, 0, rs.Mask.full())
    assert twice.num_surplus == len(steps[0].pairs()) and twice.repeated.all()
    assert str(twice).endswith("sequence 0, query 0 sees key 0, twice")
    whole = {"cu_seqlens_q": [0, 16], "cu_seqlens_kv": [0, 16]}
    across = thd.check_step_metadata([whole], TWELVE, 1, 0, rs.Mask.full())
    assert across.num_surplus == 256 - 49 - 25 and not across.repeated.any()
    assert "sequence 0, query 0 sees key 7, which the mask hides" in str(across)


def test_long_lists_are_cut_and_counts_are_not():
    layout = rs.PackedLayout.from_lengths([80])
    report = thd.check_step_metadata([], layout, 1, 0, rs.Mask.full())
    assert report.num_missing == 6400 and len(report.missing) == 1000


def test_step_metadata_are_compared_field_by_field():
    step, same = (ours(TWELVE, 2, 1, rs.Mask.causal(), "p2p")[0] for _ in range(2))
    assert step == same and not step != same
    for name in ("window_left", "seqused_k", "cu_seqlens_q_padded"):
        other = copy.deepcopy(same)
        getattr(other, name)[0] += 1
        assert step != other, name
    assert step != ours(TWELVE, 2, 0, rs.Mask.causal(), "p2p")[0]
    assert step != "diagonal"
    with pytest.raises(TypeError, match="unhashable"):
        hash(step)


GOOD = {"cu_seqlens_q": [0, 4], "cu_seqlens_kv": [0, 8]}


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ({"cu_seqlens_q": [0, 4]}, r"theirs\[0\] has no 'cu_seqlens_kv'; expected"),
        ({**GOOD, "max_seqlen_q": 4}, r"has 'max_seqlen_q'; expected cu_seqlens_q, cu_seqlens_kv"),
        ({**GOOD, "attn_mask_type": "diagonal"}, "attn_mask_type'. is 'diagonal'; expected one of"),
        ({**GOOD, "window_size": (1, -2)}, r"window_size'. is \(1, -2\); expected \(left, right\)"),
        ({**GOOD, "window_size": (1,)}, "expected .left, right., -1 for all"),
        ({**GOOD, "cu_seqlens_kv": [0, 3, 2]}, r"is \[0, 3, 2\]; expected .sequences\+1. that"),
        ({**GOOD, "cu_seqlens_kv": [0, 2, 8]}, "has 3 offsets; expected 2, as many as"),
        ({**GOOD, "cu_seqlens_q": [0, 5]}, "entry 0 ends at row 5 of q; the rank has 4 rows"),
        ({**GOOD, "cu_seqlens_kv_padded": [1, 9]}, "ends at row 9 of k; the rank has 8 rows"),
    ],
)
def test_what_is_no_metadata_is_refused(step, words):
    with pytest.raises(ValueError, match=words):
        thd.check_step_metadata([step], rs.PackedLayout([0, 8]), 2, 0, rs.Mask.full())


def test_steps_that_do_not_fit_the_transport_are_refused():
    layout, mask = rs.PackedLayout([0, 8]), rs.Mask.full()
    with pytest.raises(ValueError, match="theirs has 1 steps; a ring of 2 has as many"):
        thd.check_step_metadata([GOOD], layout, 2, 0, mask, comm="p2p")
    with pytest.raises(ValueError, match='comm="a2a" has no step metadata; expected one of'):
        thd.check_step_metadata([GOOD], layout, 2, 0, mask, comm="a2a")
    with pytest.raises(TypeError, match=r"theirs\[0\] is a list; expected a StepMetadata or"):
        thd.check_step_metadata([[0, 4]], layout, 2, 0, mask)
