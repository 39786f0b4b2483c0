"""One-line faults, as data. Each must turn the tests red; mutants.py plants them.

old occurs exactly once in its file. like names the public issue whose fault this resembles, where
there is one: what went wrong once, in somebody's code, must not go unnoticed here.
"""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    """A fault: in file, old becomes new."""

    name: str
    file: str
    old: str
    new: str
    like: str = ""


MASK = "reference/rows/mask.h"
SEGMENT = "reference/rows/segment.h"
PIECES = "reference/partition/pieces.h"
PARTIAL = "reference/attention/partial.h"
TILE = "reference/attention/tile_attention.cpp"
EXECUTE = "reference/execute/execute.cpp"
EXECUTE_BACKWARD = "reference/execute/execute_backward.cpp"
EXECUTE_ITEMS = "reference/execute/execute_items.h"
PARALLEL = "reference/support/parallel.cpp"
RESIDENCY = "reference/plan/residency.cpp"
CARRY = "reference/execute/carry.cpp"
RING = "reference/transport/ring_of_groups.cpp"
HOPS = "reference/transport/ring_of_groups.h"
ORACLE = "reference/attention/oracle.cpp"
LAYOUT = "bindings/core/layout.cpp"
PLAN = "bindings/core/plan.cpp"

MUTANTS = [
    # --- which keys a query sees
    Mutant(
        "left window hides its last key",
        MASK,
        "p - left > lo) lo = p - left;",
        "p - left >= lo) lo = p - left + 1;",
        "ring-flash-attention #35: windows ignored or off by one",
    ),
    Mutant(
        "right window hides its last key",
        MASK,
        "p + right + 1 < hi) hi = p + right + 1;",
        "p + right < hi) hi = p + right;",
        "TransformerEngine AG right window: rows lose right keys",
    ),
    Mutant(
        "chunk of a negative place rounds towards zero",
        MASK,
        "const int64_t begin = floor_div(p, chunk) * chunk;",
        "const int64_t begin = p / chunk * chunk;",
    ),
    Mutant(
        "chunk is a token too long",
        MASK,
        "if (begin + chunk < hi) hi = begin + chunk;",
        "if (begin + chunk + 1 < hi) hi = begin + chunk + 1;",
        "TransformerEngine #1887: chunk borders under context parallelism",
    ),
    Mutant(
        "bottom-right shift has the wrong sign, in definition and interval alike",
        MASK,
        "int64_t{q} + len_k - len_q",
        "int64_t{q} + len_q - len_k",
        "flash-attention #436: alignment when lengths differ",
    ),
    Mutant(
        "a chunk's last queries do not see their key",
        MASK,
        "if (first + chunk < hi) hi = first + chunk;",
        "if (first + chunk - 1 < hi) hi = first + chunk - 1;",
    ),
    Mutant(
        "a window is thought to go on across the next chunk",
        MASK,
        "if (end < change) change = end;",
        "(void)end;",
    ),
    Mutant(
        "the definition's window is exclusive",
        MASK,
        "if (left != kUnbounded && k < p - left) return false;",
        "if (left != kUnbounded && k <= p - left) return false;",
    ),
    # --- padding and positions
    Mutant(
        "strided rows are counted rounding down",
        SEGMENT,
        "(further - 1) / stride + 1;",
        "further / stride;",
    ),
    Mutant(
        "padding rows are computed",
        SEGMENT,
        "return first_at_or_after(length);",
        "return first_at_or_after(length) * 0 + len;",
        "TransformerEngine #3331: tail padding taken for tokens",
    ),
    Mutant(
        "padding keys are seen",
        "reference/plan/plan.h",
        "problem.layout_k.len(s)",
        "problem.layout_k.padded_len(s)",
        "Automodel #3640: where padding lies was assumed",
    ),
    Mutant(
        "position ids ignore the stride",
        PLAN,
        "positions.push_back(s.position(i));",
        "positions.push_back(s.pos + i);",
        "Megatron-LM #5243: RoPE positions after sharding",
    ),
    Mutant(
        "rolling runs through padding",
        LAYOUT,
        "kept = layout.len(s) - std::abs(shift);",
        "kept = layout.padded_len(s) - std::abs(shift);",
        "Megatron-LM #4495: roll at the wrong boundaries",
    ),
    Mutant(
        "packing starts rows at the valid prefix sums",
        LAYOUT,
        "packed[rows(layout.row_begin(s), layout.len(s))]",
        "packed[rows(layout.cu_seqlens()[s], layout.len(s))]",
        "Megatron-LM #5541: real against padded lengths",
    ),
    Mutant(
        "sharding keys takes the rows of queries",
        PLAN,
        "return array[row_indices(plan, rank, side)];",
        'return array[row_indices(plan, rank, "q")];',
    ),
    Mutant(
        "a multiple is padded once more",
        "reference/rows/packed_layout.cpp",
        "(n + m - 1) / m * m",
        "(n / m + 1) * m",
    ),
    Mutant(
        "more tokens than rows are accepted",
        "reference/rows/packed_layout.cpp",
        "require(len(s) <= padded_len(s),",
        "require(len(s) >= 0,",
    ),
    # --- who owns what
    Mutant(
        "zigzag does not mirror its second chunk",
        PIECES,
        "{length - end.ceil, length - begin.ceil}",
        "{length / 2 + begin.floor, length / 2 + end.floor}",
    ),
    Mutant(
        "stripes begin one rank late",
        PIECES,
        "{rank, length > rank ? length : rank}",
        "{(rank + 1) % cp_size, length > rank ? length : rank}",
    ),
    Mutant(
        "whole_pack forgets the last row",
        "reference/partition/partition.cpp",
        "std::min(rows.end, starts[s + 1]);",
        "std::min(rows.end, starts[s + 1] - (s + 1 == layout.batch()));",
    ),
    Mutant(
        "lengths are divided by cp_size rounding down",
        PIECES,
        "{cut(length, cp_size, rank), cut(length, cp_size, rank + 1)}",
        "{cut(length, cp_size, rank), cut(length, cp_size, rank) + length / cp_size}",
        "TransformerEngine #1930, #1929, Megatron-LM #1669",
    ),
    Mutant(
        "a row may be owned twice",
        "reference/verify/validate.cpp",
        "require(previous < 0,",
        "require(previous < 99,",
    ),
    # --- what moves
    Mutant(
        "the ring turns the other way",
        HOPS,
        "(group - step % groups_ + groups_) % groups_",
        "(group + step) % groups_",
        "Megatron-LM #1151: orders of peers that do not match",
    ),
    Mutant(
        "the ring stops a hop too early",
        HOPS,
        "last_hop_[owner] = (group - owner + groups_) % groups_;",
        "last_hop_[owner] = (group - owner + groups_) % groups_ - 1;",
        "lm-engine #455: hops skipped under a window",
    ),
    Mutant(
        "the ring never drops a hop",
        HOPS,
        "if (group == owner || !sees(group, owner)) continue;",
        "if (group == owner) continue;",
        "lm-engine #455: hops that nobody needs",
    ),
    Mutant(
        "all-to-all: keys of a rank without queries stay behind",
        RING,
        "if (plan.rows(plan.home_q[rank]) > 0 || plan.rows(plan.home_kv[rank]) > 0)",
        "if (plan.rows(plan.home_q[rank]) > 0)",
    ),
    Mutant(
        "all-to-all cuts uneven heads elsewhere at the end",
        RING,
        "cut(n, a2a_size_, member + 1)};",
        "n - cut(n, a2a_size_, a2a_size_ - 1 - member)};",
        "verl #1226, vLLM-omni #5716: heads that do not divide",
    ),
    Mutant(
        "gradients of replicated kv heads are not summed",
        CARRY,
        "sum[d] += g[d];",
        "sum[d] = g[d];",
        "prime-rl #3042: fewer kv heads than ranks",
    ),
    # --- softmax and merging
    Mutant(
        "two empty partials merge to NaN",
        PARTIAL,
        "if (top == -INFINITY) return {T(0), T(0), top};\n  const T ea = lse_a == top ?",
        "const T ea = lse_a == top && top > -INFINITY ?",
        "FlashInfer #2113, TransformerEngine: -inf minus -inf",
    ),
    Mutant(
        "lse is merged in base 2",
        PARTIAL,
        "top + std::log(sum)}",
        "top + std::log2(sum)}",
        "vLLM #28840: base 2 against base e",
    ),
    Mutant(
        "a tile overwrites what was there",
        TILE,
        "out[d] = w.a * out[d] + b * softmax.out(i, d);",
        "out[d] = b * softmax.out(i, d);",
    ),
    Mutant(
        "online softmax forgets to rescale",
        TILE,
        "top(i) == new_top ? 1 : std::max(",
        "top(i) <= new_top ? 1 : std::max(",
    ),
    Mutant(
        "scores are exponentiated without their maximum",
        TILE,
        "const double new_top = larger(top(i), scores.maxCoeff<Eigen::PropagateNaN>());",
        "const double new_top = 0;",
        "EasyContext #14: exp overflows",
    ),
    # --- backward
    Mutant(
        "backward keeps what the exchange on the way back has taken",
        EXECUTE_BACKWARD,
        "keys_.pop_back();",
        "if (step == 0) keys_.pop_back();",
        "diffusers #14265: stale K/V, training looks healthy",
    ),
    Mutant(
        "a buffer that is named without a message is not new",
        RESIDENCY,
        "return plan.steps_of_rank[rank][step].before.moves(operand) ||",
        "return plan.steps_of_rank[rank][step].before.moves(operand) && rank >= 0 &&",
        "a plan that claims rows which never arrived",
    ),
    Mutant(
        "backward uses the keys of the first step",
        EXECUTE_BACKWARD,
        "{queries_.back(), keys_.back(), options_}",
        "{queries_.back(), keys_.front(), options_}",
        "diffusers #14265: stale K/V, training looks healthy",
    ),
    Mutant(
        "backward uses a tile's own lse",
        TILE,
        "to_weights(p, lse);",
        "to_weights(p, lse * 0 + std::log(p.array().exp().sum()));",
        "tt-metal #53205: dV exact, dQ off by 9.6 %",
    ),
    Mutant(
        "backward uses a tile's own delta",
        TILE,
        "(ds.array() - delta) *",
        "(ds.array() - (delta * 0 + (p.array() * ds.array()).sum())) *",
        "tt-metal #53205",
    ),
    Mutant(
        "dk lacks the softmax scale",
        TILE,
        "add_over_queries(sum, ds, q, seen)",
        "add_over_queries(sum, ds, (q / task.options.softmax_scale).eval(), seen)",
    ),
    Mutant(
        "query heads of a group overwrite each other's gradient",
        EXECUTE_BACKWARD,
        "sum.at(row, head)[d] += term.at(row, 0)[d];",
        "sum.at(row, head)[d] = term.at(row, 0)[d];",
    ),
    Mutant(
        "threads begin for processors that the process may not use",
        PARALLEL,
        "return CPU_COUNT(&usable);",
        "return 1 + CPU_COUNT(&usable);",
    ),
    Mutant(
        "query heads use kv heads in turn",
        EXECUTE_ITEMS,
        "ResidentHeads{step.q.heads.begin, step.kv.heads.begin, plan.problem.group_size()}\n"
        "      .kv_head_of(head);",
        "(step.q.heads.begin + head) % plan.problem.num_kv_heads - step.kv.heads.begin;",
    ),
    # --- options of attention
    Mutant(
        "a sink is counted twice",
        EXECUTE,
        "home[rank].merge(row, head, no_value.data(), options.sinks[head]);",
        "home[rank].merge(row, head, no_value.data(), options.sinks[head] + std::log(2));",
        "SGLang #40903: a sink counted with every part",
    ),
    Mutant(
        "dropout and ALiBi count rows instead of positions",
        TILE,
        "q_(task.tile.q.position(i)),",
        "q_(task.tile.q.row + i),",
        "TransformerEngine: dropout differs with the number of ranks",
    ),
    Mutant(
        "softcap has no derivative",
        "reference/attention/score_model.h",
        "*slope = scale * (1 - bend * bend);",
        "*slope = scale;",
    ),
    # --- the definition itself
    Mutant(
        "the definition's gradient lacks the scale",
        ORACLE,
        "a.options.softmax_scale * p.cwiseProduct",
        "p.cwiseProduct",
    ),
    Mutant(
        "the definition's dv ignores dout",
        ORACLE,
        "head.out(dout));",
        "head.out(saved.out.data()));",
        "mindone #1438: dout ignored, hidden by loss = sum()",
    ),
    Mutant(
        "the definition uses kv heads in turn",
        ORACLE,
        "int kv_head = head / (a.num_heads / a.num_kv_heads);",
        "int kv_head = head % a.num_kv_heads;",
    ),
    Mutant(
        "the definition overwrites the gradient of a group",
        ORACLE,
        "if (allowed(i, j)) into.row(i) += w(i, j) * x.row(j);",
        "if (allowed(i, j)) into.row(i) = (j == 0 ? 0.0 : 1.0) * into.row(i) + w(i, j) * x.row(j);",
    ),
    # --- tiles, proof, cost, files
    Mutant(
        "a tolerance that is no number lets everything pass",
        "bindings/ringside/testing/check.py",
        "if not (error <= limit).all():",
        "if (error > limit).any():",
    ),
    Mutant(
        "segments are counted by sequences that nobody has checked",
        "reference/estimate/plan_size.cpp",
        "  check_shards(operand, layout, shards);\n",
        "",
    ),
    Mutant(
        "a dense batch of as many rows passes for that of a layout",
        "bindings/ringside/_attention/formats.py",
        "if batch == layout.num_sequences and seqlens <= {seqlen}:",
        "if batch * seqlen == layout.num_rows:",
    ),
    Mutant(
        "keys of a dense batch have no padding, whatever the layout of its queries",
        "bindings/ringside/_attention/definition.py",
        "return layout_q, layout_q if layout_k is None else",
        "return layout_q, layout_of_dense(k, 'k', qkv_format) if layout_k is None else",
    ),
    Mutant(
        "a query that is none sees nothing",
        "bindings/core/mask.cpp",
        "if (kAsked == Asked::queries) check_query(",
        "if (false) check_query(",
    ),
    Mutant(
        "a tile is judged by its first row alone",
        "reference/rows/seen_rows.h",
        "q.position(end - 1)",
        "q.position(begin)",
    ),
    Mutant(
        "the proof does not count what is computed",
        "reference/verify/verify_coverage.cpp",
        "if (computed != visible.size() || !keys_distinct(q))",
        "if (computed < 0 || !keys_distinct(q))",
    ),
    Mutant(
        "the proof accepts pairs computed twice",
        "reference/verify/verify_coverage.cpp",
        "plan_require(times == 1,",
        "plan_require(times >= 1,",
    ),
    Mutant(
        "the proof does not look at what arrives",
        "reference/verify/verify_exchanges.cpp",
        "if (arriving[i] != claimed[m.row + i])",
        "if (m.rows < 1)",
    ),
    Mutant(
        "the proof completes messages whose other end is missing",
        "reference/verify/verify_exchanges.cpp",
        "if (!r.posted || first_unmet(rank)) return false;",
        "if (!r.posted || (first_unmet(rank) && r.step == 0)) return false;",
        "NCCL #2024, Megatron-LM #1025: hangs",
    ),
    Mutant(
        "cost counts all heads on every rank",
        "reference/plan/cost.cpp",
        "total.add_work(rank, i, counts, steps[i].q.heads.size());",
        "total.add_work(rank, i, counts, plan.problem.num_heads);",
    ),
    Mutant(
        "JSON swaps the two sides of the window",
        "bindings/ringside/_plan/json_format.py",
        "list(self.mask.window_size)",
        "list(self.mask.window_size)[::-1]",
    ),
    Mutant(
        "an infinite scale is accepted",
        "bindings/core/options.cpp",
        "std::isfinite(*softmax_scale)",
        "!std::isnan(*softmax_scale)",
    ),
]
