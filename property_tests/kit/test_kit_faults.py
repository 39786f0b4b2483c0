"""The gallery: every fault is caught within the default budget, shrinks, and its cure is right."""

import pytest
from hypothesis import HealthCheck, given, seed, settings
from ringside.testing import Demands, Disagreement, check_attention, check_context_parallel
from ringside.testing.faults import GALLERY, W8, _chunks, _varlen

BUDGET = 200  # of `ringside fuzz`
SEARCH = settings(
    max_examples=BUDGET,
    database=None,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
SMALL = {"W6": 12}
"""Tokens of the smallest case; W6 needs two interior chunks in one of four halves."""


def smallest_failure(fault):
    @seed(0)
    @SEARCH
    @given(fault.cases)
    def check(case):
        check_context_parallel(fault, case)

    with pytest.raises(Disagreement) as failure:
        check()
    return failure.value


@pytest.mark.parametrize("fault", GALLERY.values(), ids=GALLERY)
def test_a_fault_is_caught_and_shrinks_to_a_few_tokens(fault):
    failure = smallest_failure(fault)
    case = failure.case
    assert case.layout_q.num_tokens <= SMALL.get(fault.name, 8), case
    assert case.layout_q.num_sequences == 1, case
    assert case.num_heads == case.head_dim == case.head_dim_v == 1, case
    assert case.cp_size == 2, case
    assert failure.finding.reads
    check_context_parallel(fault.cured, case)


@pytest.mark.parametrize("fault", GALLERY.values(), ids=GALLERY)
def test_the_cure_is_right_everywhere(fault):
    @settings(max_examples=100)
    @given(fault.cases)
    def check(case):
        check_context_parallel(fault.cured, case)

    check()


@pytest.mark.parametrize("fault", GALLERY.values(), ids=GALLERY)
def test_every_fault_tells_its_story_and_source(fault):
    assert len(fault.story.split()) > 30
    assert fault.source
    assert repr(fault) == fault.name


@settings(max_examples=10)
@given(W8.cases)
def test_low_precision_merges_are_what_the_model_says(case):
    """W8 is explained by its merges in bfloat16; the cure needs no such excuse."""
    check_context_parallel(W8.cured, case)
    told = Demands(merge="bfloat16")
    assert check_context_parallel(W8, case, demands=told).largest_ratio < 0.9


def test_low_precision_merges_are_noticed_when_not_told():
    @SEARCH
    @given(W8.cases)
    def check(case):
        check_context_parallel(W8, case)

    with pytest.raises(Disagreement, match="only this number is off"):
        check()


def test_the_chunk_model_repeats_the_documented_prefix_sums():
    assert _chunks.merged_cuts(0, 2, 6, 2) == [2, 4, 6, 8, 12]
    assert _chunks.all_cuts(0, 2, 6, 2) == [2, 4, 6, 8, 10, 12]
    assert _chunks.merged_cuts(1, 2, 6, 8) == _chunks.all_cuts(1, 2, 6, 8) == [2, 10, 12]


def test_the_kernel_model_is_the_definition_without_ranks():
    """One piece a document: the contract of the models' varlen kernel, against the definition."""
    from ringside.testing.faults._cases import padded_documents_with_right_windows

    def kernel(q, k, v, *, layout_q, layout_k, mask, softmax_scale):
        left, right = (_varlen.bound(side) for side in mask.window_size)
        pieces = [
            _varlen.Piece(begin, n, begin, n, left, right)
            for begin, n in zip(layout_q.cu_seqlens_padded, layout_q.lengths, strict=False)
        ]
        return _varlen.varlen(q, k, v, pieces, _varlen.scale_of(q, softmax_scale))

    @settings(max_examples=50)
    @given(padded_documents_with_right_windows())
    def check(case):
        check_attention(kernel, case)

    check()
