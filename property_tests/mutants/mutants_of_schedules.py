"""Faults in what a rank does in a pass: waits, areas, sums, messages, and their proof."""

from mutants_list import Mutant

SCHEDULE = "reference/schedule/"
STACKS = "optimized/tables/schedules/stack_schedule.cpp"
LAST_SUM = "optimized/tables/schedules/last_sum.cpp"
MUTANTS_OF_SCHEDULES = [
    Mutant(
        "the last sum is left to the end although its rows are overwritten before",
        LAST_SUM,
        "!is_of_all_heads(op) || !stays(op.from, i)) break;",
        "!is_of_all_heads(op)) break;",
    ),
    Mutant(
        "the last sum is left to the end although the sums are asked for before",
        LAST_SUM,
        "if (!touches(op, home)) continue;",
        "if (!writes(op, home)) continue;",
    ),
    Mutant(
        "a sum of some heads is left to the end as one of all",
        LAST_SUM,
        "return from == to && op.from.heads == from && op.to.heads == to;",
        "return op.from.heads == from || to.size() > 0;",
    ),
    Mutant(
        "what is added at the end is of the row before",
        LAST_SUM,
        "found[run.to + row * run.to_step] = run.from + row * run.from_step;",
        "found[run.to + row * run.to_step] = run.from + row / 2 * run.from_step;",
    ),
    Mutant(
        "terms are left to the end although their sum is asked for before",
        LAST_SUM,
        "if (!is_read_on(op.from, index)) terms",
        "terms",
    ),
    Mutant(
        "terms are left to the end although other rows come where they lie",
        LAST_SUM,
        "is_of_all_heads(op) && stays(op.from, i) &&\n",
        "is_of_all_heads(op) &&\n",
    ),
    Mutant(
        "a sum is taken for 0 where some of it was not cleared",
        LAST_SUM,
        "op.to.buffer == sum.buffer && is_whole(op.to) &&",
        "op.to.buffer == sum.buffer &&",
    ),
    Mutant(
        "terms are found by rows of the sum, not of what it is added to",
        LAST_SUM,
        "row == kNobody ? kNobody : term_of[row]",
        "row == kNobody ? kNobody : row",
    ),
    Mutant(
        "a sum of terms begins with the second",
        LAST_SUM,
        "terms.back().begins = true;",
        "terms.front().begins = true;",
    ),
    Mutant(
        "an operation forgets what it waits for",
        SCHEDULE + "builder.cpp",
        "if (last > seen) operation.after.push_back(seen = last);",
        "if (last > seen) seen = last;",
    ),
    Mutant(
        "a buffer is taken for free one step early",
        SCHEDULE + "builder.cpp",
        "if (x.area == kCaller || x.area != y.area) return false;",
        "return false;",
    ),
    Mutant(
        "keys lie in one area, not in two in turn",
        SCHEDULE + "lower.cpp",
        "areas_[taken_++ % 2]",
        "areas_[taken_++ % 1]",
    ),
    Mutant(
        "own tiles wait until what comes for others has its place",
        SCHEDULE + "lower.cpp",
        "land({now.queries, now.keys});",
        "land_all();",
    ),
    Mutant(
        "more arrives in staging before what is there has its place",
        SCHEDULE + "lower.cpp",
        "  land_all();\n  for (const BlockMove& pack",
        "  for (const BlockMove& pack",
    ),
    Mutant(
        "tiles read keys where they came, not where they are kept",
        SCHEDULE + "forward.cpp",
        "return keys == copied_keys_ ? kept_keys_ : keys;",
        "return keys;",
    ),
    Mutant(
        "keys are kept before they are put in their place",
        SCHEDULE + "forward.cpp",
        "land({keys});",
        "",
    ),
    Mutant(
        "the proof takes keys of another step for those that are kept",
        SCHEDULE + "verify/verify_kept.cpp",
        "copy.step == last_arrival(read.step) &&",
        "",
    ),
    Mutant(
        "tiles wait for others' rows that land beside the rank's own",
        SCHEDULE + "lower.cpp",
        "    return m.block.buffer == copy.to.buffer;",
        "    return m.block.buffer == copy.to.buffer && m.peer > 1000;",
    ),
    Mutant(
        "the proof takes the buffer of another step for the keys that are kept",
        SCHEDULE + "verify/verify_kept.cpp",
        "buffer != copy.from.buffer || forward_.operations[operation].step == copy.step,",
        "operation >= 0,",
    ),
    Mutant(
        "backward goes on with the keys of the step after",
        SCHEDULE + "backward.cpp",
        "now.keys = keys_before;",
        "now.keys = step > 1 ? keys_before : now.keys;",
    ),
    Mutant(
        "gradients that arrive are added in another order",
        SCHEDULE + "lower.cpp",
        "return x.peer < y.peer;",
        "return x.peer > y.peer;",
    ),
    Mutant(
        "what arrives at last is not added",
        SCHEDULE + "backward.cpp",
        "add_arrivals(0);",
        "if (late_.size() > 1) add_arrivals(0);",
    ),
    Mutant(
        "sums are taken for what has arrived, and their area for free",
        SCHEDULE + "backward.cpp",
        "std::ranges::all_of(late_, has_arrived) &&",
        "",
    ),
    Mutant(
        "what arrives waits although others are sent its sum",
        SCHEDULE + "backward.cpp",
        "std::ranges::all_of(group.receives, is_own);",
        "true;",
    ),
    Mutant(
        "keys come from the row after",
        SCHEDULE + "home_rows.cpp",
        "runs.push_back({run.from, 0, {}});",
        "runs.push_back({run.from + (run.from > 0 ? 1 : 0), 0, {}});",
    ),
    Mutant(
        "queries forget the way they came",
        SCHEDULE + "backward.cpp",
        "now.queries = queries_before_[index];",
        "now.queries = queries_before_[0];",
    ),
    Mutant(
        "the proof overlooks a race",
        SCHEDULE + "verify/verify_schedule.cpp",
        "plan_require(other <= seen[i], where(schedule, i),",
        "plan_require(other <= i, where(schedule, i),",
    ),
    Mutant(
        "the proof takes a group for ended that has not met",
        SCHEDULE + "verify/verify_progress.cpp",
        "if (!is_met(rank, op)) return false;",
        "is_met(rank, op);",
    ),
    Mutant(
        "the proof overlooks a sum that stays behind",
        SCHEDULE + "verify/verify_schedule.cpp",
        "if (!is_sum || stays) continue;",
        "if (!is_sum || stays || gone[i] == 0) continue;",
    ),
    Mutant(
        "partial results are counted as they travel, not as they lie",
        SCHEDULE + "schedule_cost.cpp",
        "v * (travels ? sizes.bytes : f32)",
        "v * sizes.bytes",
    ),
    Mutant(
        "what is kept lies where the next keys come",
        SCHEDULE + "builder.cpp",
        "schedule_.areas[area].kept = true;",
        "schedule_.areas[area].kept = area % 2 == 0;",
    ),
    Mutant(
        "backward takes the kept keys of another step",
        SCHEDULE + "backward.cpp",
        "kept_keys_.push_back(keys);",
        "kept_keys_.insert(kept_keys_.begin(), keys);",
    ),
    Mutant(
        "keys that no tile reads are kept, too",
        SCHEDULE + "kept_keys.cpp",
        "if (!plan.tiles(steps[i]).empty()) return true;",
        "return true;",
    ),
    Mutant(
        "the proof overlooks keys that are kept before they have come",
        SCHEDULE + "verify/verify_kept.cpp",
        "last_before == keys && !comes_after",
        "last_before >= 0 && !comes_after",
    ),
    Mutant(
        "keys that are kept are counted as fetched",
        SCHEDULE + "schedule_cost.cpp",
        "if (keep_ == KeepKv::yes) return {};",
        "",
    ),
    Mutant(
        "of all ranks on one device, what a step needs comes a step late",
        STACKS,
        "residency.step >= 0 && residency.step <= step;",
        "residency.step >= 0 && residency.step < step;",
    ),
    Mutant(
        "of all ranks on one device, gradients of queries go home to what lay there before",
        STACKS,
        "      clear(step, query_sums_[at_q_ - 1]);\n",
        "",
    ),
    Mutant(
        "of all ranks on one device, all take the rows of the first",
        STACKS,
        "push_back({rank, of_q.row, of_kv.row});",
        "push_back({rank, q.of_rank[0].row, of_kv.row});",
    ),
]
