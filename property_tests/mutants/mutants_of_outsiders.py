"""One-line faults planted by somebody who has read the product and none of its tests.

They sit where the definition and the plans share a path, at sizes that are rarely met, and in the
checks themselves: verify(), the kit, what refuses bad input. The comment over each fault names an
input that shows it.
"""

from __future__ import annotations

from mutants_list import MASK, Mutant

PHILOX = "reference/attention/philox.h"
LAYOUT = "reference/rows/packed_layout.cpp"
VERIFY = "reference/verify/verify.cpp"
EXCHANGES = "reference/verify/verify_exchanges.cpp"
KIT = "bindings/ringside/testing/"

SHARED_PATHS = [
    # Mask((-1, -1), chunk_size=4, align="bottom_right"), 3 queries over 1 key: p = -2 sees key 0.
    Mutant(
        "negative positions fall in the first chunk",
        MASK,
        "a / b - (a % b < 0 ? 1 : 0)",
        "a / b",
    ),
    # Seeds 1 and 1 + 2**32 drop the same weights.
    Mutant(
        "a dropout seed has 32 bits", PHILOX, "static_cast<uint32_t>(seed >> 32)", "uint32_t{0}"
    ),
    # Keys 0 and 1, 2 and 3, ... are dropped together; their share stays p.
    Mutant("two keys share a random word", PHILOX, "random.word[k % 4]", "random.word[k % 4 / 2]"),
    # Nine heads or more, alibi_slopes one a head.
    Mutant(
        "the ninth head takes the first one's ALiBi slope",
        "reference/attention/attention_options.h",
        "alibi_slopes[head]",
        "alibi_slopes[head % 8]",
    ),
    # softmax_scale=0.0: every visible key weighs the same.
    Mutant(
        "a softmax_scale of 0 is the default one",
        "bindings/ringside/_attention/options.py",
        "_core.OptionsArgument(**given, dropout_origin=origin)",
        '_core.OptionsArgument(**given | {"softmax_scale": options.softmax_scale or None})',
    ),
    # dropout_p=nan: a plan drops every weight, and nobody says so.
    Mutant(
        "NaN passes for a probability",
        "bindings/core/options.cpp",
        "0 <= dropout_p && dropout_p < 1",
        "!(dropout_p < 0) && !(dropout_p >= 1)",
    ),
    # attention_backward, qkv_format="bshd", two sequences or more, two heads or more.
    Mutant(
        "a dense lse goes back without its axes swapped",
        "bindings/ringside/_attention/formats.py",
        "lse.swapaxes(0, 1).reshape(",
        "lse.reshape(",
    ),
    # causal=True, window_size=(3, 2): queries see two keys ahead.
    Mutant(
        "causal yields to a window that looks ahead",
        "bindings/ringside/flash.py",
        'if arguments.boolean(causal, "causal"):',
        'if arguments.boolean(causal, "causal") and right < 0:',
    ),
    # PackedLayout([0, 2, 8], [0, 6, 8]): 6 tokens in 2 rows, hidden by the spare rows before.
    Mutant(
        "tokens are held against rows by their sums",
        LAYOUT,
        "require(len(s) <= padded_len(s), ",
        "require(cu_seqlens_[s + 1] <= cu_seqlens_padded_[s + 1], ",
    ),
    # from_position_ids([0, 0, 1]): documents of 1 and 2 tokens become one of 3.
    Mutant(
        "a first document of one token is swallowed",
        LAYOUT,
        "position_ids[row] == 0 && row > 0",
        "position_ids[row] == 0 && row > 1",
    ),
    # plan.unshard([part of 1 row, ...]) where the rank owns 5: NumPy spreads the row.
    Mutant(
        "a part of one row is spread over a rank's rows",
        "bindings/core/plan.cpp",
        "require(parts[rank].shape(0) == rows.size(), ",
        "require(parts[rank].shape(0) <= rows.size(), ",
    ),
    # plan.attention with 4 kv heads in k and 2 in v: memory behind v is read.
    Mutant(
        "a plan takes v of any number of heads",
        "bindings/core/plan_runs.cpp",
        'require_shape(x.v, "v", p.num_kv_heads, ',
        'require_shape(x.v, "v", static_cast<int>(x.v.shape(1)), ',
    ),
    # A table of JSON with -2**32 + 3 where 3 stands: astype(int32) makes it 3 again.
    Mutant(
        "numbers of JSON below int32 wrap around",
        "bindings/ringside/_plan/json_format.py",
        "limits.min <= cells.min() and cells.max() <= limits.max",
        "cells.max() <= limits.max",
    ),
]

RARE_SIZES = [
    # A rank of 256 rows or more: out 0 and lse -inf in its row 255, forward only.
    Mutant(
        "row 255 of a rank is left out",
        "reference/execute/execute.cpp",
        "std::min(begin + kRowsOfItem, rows)",
        "std::min(begin + kRowsOfItem - 1, rows)",
    ),
    # cost() of 2**18 tokens on 2 ranks, 64 kv heads, head_dim 128: 2**32 bytes travel, 0 counted.
    Mutant(
        "bytes of a message wrap at int32",
        "reference/plan/cost.cpp",
        "int64_t{m.rows} * m.heads.size() * dim * sizes.bytes",
        "m.rows * m.heads.size() * dim * sizes.bytes",
    ),
    # An all-to-all, cost(head_dim=192, head_dim_v=128): q counts 128, out 192.
    Mutant(
        "cost swaps the head dimensions",
        "bindings/core/plan_cost.cpp",
        "return {head_dim, head_dim_v.value_or(head_dim), bytes_per_element};",
        "return {head_dim_v.value_or(head_dim), head_dim, bytes_per_element};",
    ),
    # thd.partition_indices([0, 2**25], 128, 127): 2**25 * 128 does not fit.
    Mutant(
        "a chunk begins at a product of 32 bits",
        "reference/partition/pieces.h",
        "uint64_t{static_cast<uint32_t>(length)} * static_cast<uint32_t>(i)",
        "uint64_t{static_cast<uint32_t>(length) * static_cast<uint32_t>(i)}",
    ),
    # One run of more than 256 KiB moved by sequence_order_to_cp_rank_order.
    Mutant(
        "the second block of a copy lands on the first",
        "reference/thd/copy_rows.cpp",
        "buffers.target + (copies[i].to + skip) * buffers.row_bytes",
        "buffers.target + copies[i].to * buffers.row_bytes",
    ),
    # 2 tokens over cp_size 2, keys of rank 0, which holds position 1 only: query 0 gets an entry.
    Mutant(
        "keys begin in a first run that is empty",
        "reference/thd/step_entry.h",
        "first_key = kv.first.size() > 0 ? kv.first.begin : kv.second.begin;",
        "first_key = kv.first.begin;",
    ),
    # A stream of 2**30 rows over cp_size 4, zigzag: chunk 4 begins at 2**32 / 8.
    Mutant(
        "a cut whose product has 33 bits is made in 32",
        "reference/partition/pieces.h",
        "product >> 32 == 0",
        "product >> 33 == 0",
    ),
    # cp_size 1, 2**30 + 1 rows: half of them is one too many.
    Mutant(
        "a divisor is exact for 30 bits only",
        "optimized/tables/thd/dual_chunks.h",
        "(int64_t{1} << (shift_ - 31)) < d",
        "(int64_t{1} << (shift_ - 30)) < d",
    ),
    # Sequence 512 of a batch of more: its rows lie on those of sequence 0.
    Mutant(
        "sequence 512 forgets the rows of those before it",
        "optimized/tables/length_tables.h",
        "chunk < seq / kChunk",
        "chunk < (seq - 1) / kChunk",
    ),
    # pad_to_multiple_of=1, cp_size=2, 3 sequences of 5 rows: a rank owns more than is allotted.
    Mutant(
        "a rank has no room for ragged lengths",
        "optimized/tables/capacity.cpp",
        "c.pad_to_multiple_of % chunks == 0",
        "chunks % c.pad_to_multiple_of == 0",
    ),
    # An all-to-all of 4 heads on 2 ranks, a rank of more than 256 rows: pitches 4 and 2.
    Mutant(
        "later pieces of a block lie by the sender's pitch",
        "optimized/tables/move_tables.cpp",
        "go_on(piece.to, piece.to_pitch, piece.to_map);",
        "go_on(piece.to, piece.from_pitch, piece.to_map);",
    ),
    # All-gather, window (3, -1), cp_size 1, queries [4, 8], keys [5, 8], second step: (3, -1) hides
    # key 0 of the first sequence from its last query.
    Mutant(
        "one window hides a key of an entry without one",
        "bindings/ringside/thd/_steps.py",
        "free - 1 <= binding[0]",
        "free - 2 <= binding[0]",
    ),
    # copy_rows(out, x, [(1, -1, 0, 1, 3)]): NumPy takes row -1 for the last.
    Mutant(
        "a backward segment reads below row 0",
        "bindings/ringside/thd/_segments.py",
        "outside |= (last < 0) | (last >= size)",
        "outside |= last >= size",
    ),
    # A MicroSequenceBuffer used for a second sequence: the first one's dk and dv are in its own.
    Mutant(
        "gradients of the sequence before are kept",
        "bindings/ringside/micro_sequences.py",
        "if i == 0:  # a new sequence",
        "if i == 0 and self.dk is None:  # a new sequence",
    ),
]

LOST_CHECKS = [
    # Segments that leave out a padding row: accepted, and out is NaN there.
    Mutant(
        "padding needs no owner",
        "reference/verify/validate.cpp",
        "pos < layout.padded_len(s)",
        "pos < layout.len(s)",
    ),
    # An all-to-all of 2 heads in which the ranks trade the kv heads of each other's query heads.
    Mutant(
        "verify compares kv heads by number",
        VERIFY,
        "inner.size() == 0 || (outer.begin <= inner.begin && inner.end <= outer.end)",
        "inner.size() <= outer.size()",
    ),
    # An all-to-all whose second rank receives the keys in another order under the same tile list.
    Mutant(
        "verify proves a tile list for one key buffer only",
        VERIFY,
        "proven.insert({step.tiles, step.q.shard, step.kv.shard})",
        "proven.insert({step.tiles, step.q.shard, 0})",
    ),
    # Full mask, 2 queries, 4 keys; tiles q0-1 x k0-1, q0 x k2-3, q1 x k0-1: q1 misses keys 2 and 3.
    Mutant(
        "verify knows distinct keys by the first tile",
        "reference/verify/verify_coverage.cpp",
        "known_size == n && std::equal(list, list + n, tile_.begin() + known_begin)",
        "known_size == n",
    ),
    # An all-to-all in which head 0 is sent and head 1 received.
    Mutant(
        "verify lets messages of other heads meet",
        EXCHANGES,
        "sent.message.heads == m.heads,",
        "sent.message.heads.size() == m.heads.size(),",
    ),
    # A ring step that claims positions 0, 2, 1, 3 for what arrives as 0, 1, 2, 3.
    Mutant(
        "verify looks at the first and last row of a message",
        EXCHANGES,
        "for (int i = 0; i < m.rows; ++i)",
        "for (int i = 0; i < m.rows; i += std::max(1, m.rows - 1))",
    ),
    # ringside verify of a plan that yields NaN in a token's row.
    Mutant(
        "ringside verify takes NaN for agreement",
        KIT + "_judging.py",
        "error[np.isnan(error)] = np.inf",
        "error[np.isnan(error)] = 0.0",
    ),
    # A by_plan() of infinity against a number: largest_error() is 0.
    Mutant(
        "the error of a lone infinity is 0",
        KIT + "_judging.py",
        "error[got == true] = 0.0",
        "error[(got == true) | np.isinf(got)] = 0.0",
    ),
    # An implementation that adds 0 * (padding row) to its output.
    Mutant(
        "cases hold zeros in padding", KIT + "cases.py", "heads, dim), np.nan)", "heads, dim), 0.0)"
    ),
    # An implementation that reads the row before its array, with weight 0 or not.
    Mutant(
        "the kit puts zeros around arrays",
        KIT + "_running.py",
        "np.full((x.shape[0] + 2 * CANARY_ROWS, *x.shape[1:]), np.nan)",
        "np.zeros((x.shape[0] + 2 * CANARY_ROWS, *x.shape[1:]))",
    ),
    # A backward whose dsink is wrong and nothing else.
    Mutant(
        "the kit never looks at dsink",
        KIT + "check.py",
        'zip(("dq", "dk", "dv", "dsink"), gradients, strict=False)',
        'zip(("dq", "dk", "dv"), gradients, strict=False)',
    ),
    # bfloat16 gradients of the size of 1e-3, all of them 0.
    Mutant(
        "the kit's tolerance is that of numbers near 1",
        KIT + "tolerance.py",
        "self.w * np.abs(true) + self.tiny, 0.0",
        "self.w * np.maximum(np.abs(true), 1.0) + self.tiny, 0.0",
    ),
    # dv that are wrong by half: what rounding explains is said to be a hundred times as much.
    Mutant(
        "the kit's tolerance of dv says nothing",
        KIT + "tolerance.py",
        "+= self.weight_error(x, group).T @ np.abs(dout)",
        "+= 1e3 * self.weight_error(x, group).T @ np.abs(dout)",
    ),
    # An honest dq of many keys: the bound is less than what rounding does.
    Mutant(
        "the kit's tolerance of dq forgets the rounding of d(scores)",
        KIT + "tolerance.py",
        "return _Shares(ds, error + by_query * np.abs(ds), ",
        "return _Shares(ds, by_query * np.abs(ds), ",
    ),
    # A backward whose dq does not add one key, though it has seen it.
    Mutant(
        "a sum of gradients is not traced",
        KIT + "_report.py",
        "if is_of_sum and not finding.padding:",
        "if False:",
    ),
    # An implementation of plans that yields NaN in one tile: locate() finds nothing.
    Mutant(
        "locate passes over NaN",
        KIT + "_locate.py",
        "~(errors(ours, truth) <= self.tolerance * _size(truth))",
        "np.abs(ours - truth) > self.tolerance * _size(truth)",
    ),
]

MUTANTS_OF_OUTSIDERS = [*SHARED_PATHS, *RARE_SIZES, *LOST_CHECKS]
