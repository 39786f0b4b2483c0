"""One-line faults in what definition and plan share, and in what keeps NaN from spreading."""

from __future__ import annotations

from mutants_list import EXECUTE, ORACLE, PARTIAL, Mutant

OPTIONS = "bindings/core/options.cpp"
PHILOX = "reference/attention/philox.h"
VERIFY = "reference/verify/verify.cpp"
OF_HEAD = "values[head] = x->data()[x->ndim() == 0 ? 0 : head];"

MUTANTS_OF_SHARED_PATHS = [
    Mutant("every head has the option of head 0", OPTIONS, OF_HEAD, "values[head] = x->data()[0];"),
    Mutant(
        "options per head are reversed",
        OPTIONS,
        OF_HEAD,
        "values[head] = x->data()[x->ndim() == 0 ? 0 : num_heads - 1 - head];",
    ),
    Mutant(
        "four neighbouring keys share one random word",
        PHILOX,
        "(random.word[k % 4] + 0.5)",
        "(random.word[0] + 0.5)",
    ),
    Mutant(
        "dropout keeps what it should drop",
        PHILOX,
        "(1.0 / 4294967296.0) >= p;",
        "(1.0 / 4294967296.0) < 1 - p;",
    ),
    Mutant(
        "eight neighbouring keys share a counter",
        PHILOX,
        "static_cast<uint32_t>(k / 4)",
        "static_cast<uint32_t>(k / 8)",
    ),
    Mutant(
        "slopes are those of head 0",
        "reference/attention/attention_options.h",
        "alibi_slopes[head]",
        "alibi_slopes[0 * head]",
    ),
    Mutant(
        "rows that others write behind an item are final",
        "optimized/tables/schedules/final_items.cpp",
        "return row.last == operation;",
        "return row.last >= operation;",
    ),
    Mutant(
        "an item is final but for its last row, which others write",
        "optimized/tables/schedules/final_items.cpp",
        "first + item.end, holds",
        "first + item.end - 1, holds",
    ),
    Mutant(
        "rows that copies and sums write, too, are told to be an item's alone",
        "optimized/tables/schedules/final_items.cpp",
        "add(operation, run.to + i * run.to_step, 1);",
        "add(operation, run.to + i * run.to_step, 0);",
    ),
    Mutant(
        "what messages add to rows is forgotten where rows are told to be an item's alone",
        "optimized/tables/schedules/final_items.cpp",
        "if (message.block.buffer == buffer) add",
        "if (message.block.buffer == -2) add",
    ),
    Mutant(
        "an item goes on from nothing where others were before it",
        "optimized/tables/schedules/final_items.cpp",
        "return row.first == operation;",
        "return row.first <= operation;",
    ),
    Mutant(
        "gradients of keys to which others have added are final",
        "optimized/tables/schedules/final_items.cpp",
        "goes_on ? writers.none_behind(i, item) : alone;",
        "writers.none_behind(i, item);",
    ),
    Mutant(
        "sums that some items alone do not use count as unused",
        "optimized/tables/schedules/final_items.cpp",
        "found.sums_unused && alone;",
        "found.sums_unused && behind;",
    ),
    Mutant(
        "items that add in turn are taken before some that they wait for",
        "optimized/tables/sums/item_turns.cpp",
        "std::tuple(-a.weight, a.item->begin)",
        "std::tuple(-a.weight, -a.item->begin)",
    ),
    Mutant(
        "rows behind a gap stand where they would without",
        "reference/rows/segment.h",
        "(i < gap_at ? 0 : gap)",
        "(i <= gap_at ? 0 : gap)",
    ),
    Mutant(
        "of what is within, the rows behind a gap are found without it",
        "reference/rows/segment.h",
        "const int behind = position - pos - gap - gap_at * stride;",
        "const int behind = position - pos - gap_at * stride;",
    ),
    Mutant(
        "queries that meet different keys are joined",
        "optimized/tables/build_work_list.cpp",
        "pieces[kept].partners == pieces[i].partners &&",
        "pieces[kept].partners.size() > 0 &&",
    ),
    Mutant(
        "queries are joined where that spares no block",
        "optimized/tables/neighbours.h",
        "blocks_of(rows + more, rows_of_block) <",
        "blocks_of(rows + more, rows_of_block) <=",
    ),
    Mutant(
        "queries of which others lie between are joined",
        "optimized/tables/neighbours.h",
        "a.row_end() == b.row &&",
        "a.row_end() <= b.row &&",
    ),
    Mutant(
        "three segments of queries are joined, and a gap forgotten",
        "optimized/tables/neighbours.h",
        "a.gap == 0 && b.gap == 0 &&",
        "b.gap == 0 &&",
    ),
    Mutant(
        "of chunks that a device joins, blocks of the second begin at the first's",
        "optimized/tables/length_tables.h",
        "      block += blocks_of(first.len, list.rows_of_item);",
        "      block += 0;",
    ),
    Mutant(
        "a device joins chunks of queries that meet different keys",
        "optimized/tables/neighbours.h",
        "if (meets != sees(b, keys_of(i))) return false;",
        "",
    ),
    Mutant(
        "the second of two chunks that keys meet as one is met once more",
        "optimized/tables/length_tables.h",
        "s = part == 0 ? joined(first, second) : Segment{seq};",
        "s = part == 0 ? joined(first, second) : second;",
    ),
    Mutant(
        "a slot behind the first chunk's blocks has one of the second's, too",
        "optimized/tables/length_tables.h",
        "    if (block * rows >= item.own.len) return false;\n",
        "",
    ),
    Mutant(
        "items take turns at blocks that a gap goes through",
        "optimized/tables/sums/item_turns.cpp",
        "queries.stride == 1 && queries.gap == 0;",
        "queries.stride == 1;",
    ),
    Mutant(
        "items of a document are apart where they are to go together",
        "optimized/tables/build_work_list.cpp",
        "if (order == ItemOrder::by_document && !items.empty() &&",
        "if (items.empty() &&",
    ),
    Mutant(
        "items go by document although one has half of the work",
        "optimized/tables/build_work_list.cpp",
        "if (2 * *std::ranges::max_element(weights) >= work) return false;",
        "",
    ),
    Mutant(
        "first keys that a window hides from some queries store dq",
        "optimized/tables/sums/first_keys.cpp",
        "return has_all ? &*first : nullptr;",
        "return first->begin == 0 || has_all ? &*first : nullptr;",
    ),
    Mutant(
        "first keys are not ahead of a document's others",
        "optimized/tables/sums/first_keys.cpp",
        "constexpr double kLead = 1.5;",
        "constexpr double kLead = 0.1;",
    ),
    Mutant(
        "lists by document do not say so, and heads go in sections",
        "optimized/tables/build_work_list.cpp",
        "    list.order = order;",
        "    list.order = ItemOrder::longest_first;",
    ),
    Mutant(
        "items of a segment are apart where a list that the device fills is by document",
        "optimized/tables/length_tables.h",
        "    all.begin = 0;\n",
        "",
    ),
    Mutant(
        "where a list that the device fills is by document, last keys come first",
        "optimized/tables/length_tables.h",
        "return side == Operand::q ? num_slots() - 1 - turn : turn;",
        "return num_slots() - 1 - turn;",
    ),
    Mutant(
        "of items that take turns, a list that the device fills has the last first",
        "optimized/tables/length_tables.h",
        "return bucket_of(int64_t{all.end} - all.begin);",
        "return bucket_of(int64_t{all.begin} + 1);",
    ),
    Mutant(
        "lengths that only the device knows may be longer than was promised",
        "optimized/tables/length_tables.h",
        "len >= 0 && len <= max_seqlen;",
        "len >= 0;",
    ),
    Mutant(
        "a document's first item goes where another one of the document before is",
        "optimized/tables/sums/documents_ahead.h",
        "ahead + begins[document - ahead];",
        "ahead + begins[document - ahead + 1];",
    ),
    Mutant(
        "items of a window are taken to meet rows in part",
        "optimized/tables/build_work_list.cpp",
        "return 2 * numbers > items.size() - rows.size();",
        "return numbers > 0;",
    ),
    Mutant(
        "an item of 256 rows loses its last",
        "optimized/tables/build_work_list.cpp",
        "std::min(begin + rows_of_item, valid)",
        "std::min(begin + std::min(rows_of_item, 255), valid)",
    ),
    Mutant(
        "the 256th row that a rank computes is left out",
        EXECUTE,
        "std::min(begin + kRowsOfItem, rows)",
        "std::min(begin + kRowsOfItem - 1, rows)",
    ),
    Mutant(
        "tiles proved for one buffer of keys count as proved for every other",
        VERIFY,
        "{step.tiles, step.q.shard, step.kv.shard}",
        "{step.tiles, step.q.shard, 0}",
    ),
    Mutant(
        "tiles proved for one buffer of queries count as proved for every other",
        VERIFY,
        "{step.tiles, step.q.shard, step.kv.shard}",
        "{step.tiles, 0, step.kv.shard}",
    ),
    Mutant(
        "what a row does not see reaches it as 0 times infinity",
        "reference/attention/seen_product.h",
        "return (x.array() * 0.0).sum() == 0;",
        "return x.size() >= 0;",
    ),
    Mutant(
        "the definition multiplies what is hidden by 0",
        ORACLE,
        "if (allowed(i, j)) into.row(i) += w(i, j) * x.row(j);",
        "into.row(i) += (allowed(i, j) ? w(i, j) : 0.0) * x.row(j);",
    ),
    Mutant(
        "merging infinite sums gives NaN",
        PARTIAL,
        "lse_a == top ? T(1) : std::exp(lse_a - top);",
        "std::exp(lse_a - top);",
    ),
    Mutant(
        "a row that sees nothing has a part in the gradient of a sink",
        "reference/execute/execute_items.h",
        "if (visible.size() == 0) return;",
        "if (visible.size() < 0) return;",
    ),
    Mutant(
        "every piece of a sequence repeats one pattern of dropout",
        "bindings/ringside/micro_sequences.py",
        "plan._dropout_origin = self._origin(i)",
        "plan._dropout_origin = (0, 0)",
    ),
    Mutant(
        "a copy of a piece of a pack starts at 0",
        "bindings/ringside/_plan/pickling.py",
        "if plan._dropout_origin == (0, 0):",
        "if len(plan._dropout_origin) == 2:",
    ),
    Mutant(
        "of an option said twice the keyword wins",
        "bindings/ringside/_attention/options.py",
        "if is_set(name, getattr(options, name)):",
        "if is_set(name, DEFAULTS[name]):",
    ),
    Mutant(
        "key items that kernels would leave out are listed",
        "optimized/tables/build_work_list.cpp",
        "require(is_sound(item),",
        "require(side == Operand::kv || is_sound(item),",
    ),
]
