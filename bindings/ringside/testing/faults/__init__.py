"""A gallery of silent faults: what public implementations compute by their metadata, and the cure.

Each entry of GALLERY is a NumPy model with the protocol of check_context_parallel, and a twin that
differs in one rule and is right. Nothing in the models is made to fail: the arithmetic is the
peers', and what kept the fault unseen is in the docstrings. "By its metadata" is meant literally:
the models were derived from source code and public reports; no GPU run of the peers stands behind
them unless the issue says so.

    ringside fuzz --kind context-parallel --implementation ringside.testing.faults:W2

>>> from ringside.testing import Disagreement, check_context_parallel
>>> import ringside as rs
>>> case = Case(rs.PackedLayout([0, 2], [0, 4]), mask=rs.Mask.sliding_window(0, 1),
...             cp_size=2, comm="all_gather")
>>> check_context_parallel(W2.cured, case).largest_ratio < 1
True
>>> try:
...     check_context_parallel(W2, case)
... except Disagreement as error:
...     print(error.finding.reads)
['read key 0 (weight 0.537, should be 0)']
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import ringside as rs
from ringside._extras import extra
from ringside.testing.cases import Case
from ringside.testing.faults import _all_gather as ag
from ringside.testing.faults import _cases, _chunks, _ring
from ringside.testing.faults._all_gather import Rules, all_gather
from ringside.testing.faults._varlen import Array, Partial

with extra("testing", "ringside.testing.faults"):
    from hypothesis.strategies import SearchStrategy

__all__ = ["GALLERY", "W1", "W2", "W3", "W4", "W5", "W6", "W7", "W8", "Model"]

Transport = Callable[..., list[Partial]]


@dataclasses.dataclass(frozen=True)
class Model:
    """A context-parallel attention under the protocol of check_context_parallel.

    Args:
        name: of the fault.
        story: what goes wrong, why, and why nobody noticed.
        source: the public issue or pull request.
        transport: computes all ranks by a rule.
        rules: the rule as the peer has it, and as it should be.
        cases: a Hypothesis strategy for what the peer accepts; `ringside fuzz` draws from it.
    """

    name: str
    story: str
    source: str
    transport: Transport
    rules: tuple[Any, Any]
    cases: SearchStrategy[Case]

    def __call__(
        self,
        qs: Sequence[Array],
        ks: Sequence[Array],
        vs: Sequence[Array],
        *,
        plan: rs.Plan,
        softmax_scale: float | None,
    ) -> list[Partial]:
        """Every rank's (out, lse), as the peer has it."""
        return self.transport(self.rules[0], (qs, ks, vs), plan, softmax_scale)

    @property
    def cured(self) -> Model:
        """The same with the right rule."""
        cured = self.rules[::-1]
        return dataclasses.replace(self, name=f"{self.name}.cured", rules=cured)

    def __repr__(self) -> str:
        """Its name."""
        return self.name


W1 = Model(
    "W1",
    """Top-left kernel, bottom-right windows.

    Two calls attend to chunks r and 2*cp_size-1-r. Their window, and the keys they may see, are
    computed for a bottom-right diagonal; the wrapper of the fused kernel is not told so, and for
    the mask "padding" it assumes top-left. Causal masks are bottom-right by name and stay right,
    and all fused context-parallel window configurations under test were causal.""",
    "TransformerEngine pull request 2829 (THD all-gather; the calls omit bottom_right_diagonal)",
    all_gather,
    (
        Rules(ag.visible_by_key_chunks, ag.window_of_longest, ag.top_left_unless_causal),
        Rules(ag.visible_by_key_chunks, ag.window_of_longest, ag.bottom_right),
    ),
    _cases.equal_documents_with_right_windows(),
)

W2 = Model(
    "W2",
    """One window for all sequences.

    A right window makes a call see keys behind its chunk, which moves the bottom-right diagonal;
    the window is shifted back by a number computed from max_seqlen. In a sequence that is shorter,
    or ends in padding, the diagonal moved by less: rows lose keys on the right and gain some on the
    left. No scalar can undo a shift that differs from sequence to sequence.""",
    "TransformerEngine pull request 2829 (get_kv_seq_info_after_all_gather, FlashAttention 3)",
    all_gather,
    (
        Rules(ag.visible_by_key_chunks, ag.window_of_longest),
        Rules(ag.visible_by_key_chunks, ag.window_of_each),
    ),
    _cases.padded_documents_with_right_windows(),
)

W3 = Model(
    "W3",
    """All queries, half of their lengths.

    Each call gets the rank's whole q with prefix sums of one chunk's lengths. Kernels that take
    padded offsets find the chunk; FlashAttention 2 takes none, so it reads from row 0 on, one
    sequence's half behind the other. Nothing refuses the combination.""",
    "TransformerEngine pull request 2829 (noted in its review; FlashAttention 2 is not gated)",
    all_gather,
    (Rules(rows=ag.rows_by_prefix_sums), Rules(rows=ag.rows_of_chunk)),
    _cases.full_documents(),
)

W4 = Model(
    "W4",
    """cu_seqlens // cp_size.

    Without pad_between_seqs a rank's prefix sums are the global ones divided by cp_size, rounded
    down. A document of 7 tokens in 8 rows has 3 on each of 2 ranks by that count: real keys are
    dropped, real rows stay 0, and later documents are looked for in the wrong place.""",
    "TransformerEngine issues 1930, 1929 and 3331; Megatron-LM issue 1669",
    _ring.ring,
    (_ring.divided_lengths, _ring.exact_lengths),
    _cases.padded_documents(),
)

W5 = Model(
    "W5",
    """Causal cross-attention by the keys' chunks.

    The gate for causal cross-attention compares max_seqlen_q with max_seqlen_kv, not sequence with
    sequence. Where only the maxima agree, the calls see keys up to the end of the keys' chunk under
    a bottom-right diagonal: neither top-left nor bottom-right causal of the document.""",
    "TransformerEngine main d0067d0 (its gate); issue 1915 asks for the combination",
    all_gather,
    (
        Rules(ag.visible_by_key_chunks, lambda place, len_k: (place.left, place.right)),
        Rules(),
    ),
    _cases.causal_cross_attention(),
)

W6 = Model(
    "W6",
    """Interior chunks come out as one.

    On the ring's diagonal each half of a rank is cut into attention chunks. Where a half holds two
    whole chunks or more inside, the kernel emits them as one piece, so that queries see the chunk
    before theirs. The one test has halves no longer than a chunk. The model follows the emitted
    prefix sums, [0, 2, 4, 6, 8, 12] for halves of 6 and chunks of 2, not the kernel's text.""",
    "TransformerEngine pull request 1887 (closed), thd_chunkify_p2p",
    _chunks.chunk_ring,
    (_chunks.merged_cuts, _chunks.all_cuts),
    _cases.attention_chunks(),
)

W7 = Model(
    "W7",
    """Nothing merged with nothing.

    Steps' lse are merged by max + log1p(exp(min - max)). Two steps in which a row sees no key are
    -inf twice, and -inf - -inf is NaN; out is guarded where it is 0, lse is not, and a later step
    in which the row does see keys is weighed with NaN. Full and causal masks reach it in padding
    only; windows and attention chunks, as soon as a ring has them, in real rows.""",
    "TransformerEngine main d0067d0 (thd_second_half_lse_correction and its PyTorch twin)",
    _ring.ring_by_positions,
    (_ring.merge_elementwise, _ring.merge_all),
    _cases.ring_with_windows(),
)

W8 = Model(
    "W8",
    """Accumulated in bfloat16.

    Not wrong, but worse with every step: out is added up in the type of the inputs. The error model
    explains it as soon as it is told so, Demands(merge="bfloat16"), and only then.""",
    "ring-flash-attention issue 42; TransformerEngine main d0067d0 (THD ring)",
    _ring.ring_by_positions,
    (_ring.merge_in_bfloat16, _ring.merge_all),
    _cases.many_steps_in_bfloat16(),
)

GALLERY = {fault.name: fault for fault in (W1, W2, W3, W4, W5, W6, W7)}
"""The faults that are wrong; W8 is a matter of precision."""
