"""Faults in where gathered rows land: sequences go on from chunk to chunk, in fewer segments."""

from mutants_list import Mutant

STACK = "reference/transport/stack.cpp"
PLACES = "reference/rows/row_places.cpp"
LOWER = "reference/schedule/lower.cpp"
VERIFY = "reference/verify/verify_exchanges.cpp"
OF_LENGTHS = "optimized/tables/"  # on the device
MUTANTS_OF_LANDINGS = [
    Mutant(
        "of lengths on the device, a group of ranks owns its first one's chunks",
        OF_LENGTHS + "partition_rows.h",
        "own.first.end = of_last.first.end, own.second.begin = of_last.second.begin;",
        "own.second.begin = own.second.begin + 0 * of_last.first.end;",
    ),
    Mutant(
        "of lengths on the device, chunks that meet stay two segments",
        OF_LENGTHS + "partition_rows.h",
        "if (own.first.end == own.second.begin) own",
        "if (own.first.end == own.second.begin - (1 << 30)) own",
    ),
    Mutant(
        "of lengths on the device, the stand-in plan's gathered rows lie rank by rank",
        OF_LENGTHS + "capacity.cpp",
        "comm.order = StackOrder::in_halves;",
        "comm.order = StackOrder::of_ranks;",
    ),
    Mutant(
        "of lengths on the device, a rank's padding is gathered nowhere",
        OF_LENGTHS + "length_tables.h",
        "if (!x.is_gathered()) return;",
        "if (!x.is_gathered() || !is_valid) return;",
    ),
    Mutant(
        "of lengths on the device, the second half of a rank's rows lands on the first",
        OF_LENGTHS + "schedules/operation_blocks.cpp",
        "= homes.at(to_gathered ? run.to : run.from);",
        "= homes.at(to_gathered ? op.runs[0].to : op.runs[0].from);",
    ),
    Mutant(
        "of lengths on the device, a rank takes its rows from the maps of the first",
        OF_LENGTHS + "own_rows.h",
        "x.global_of_home[x.home_row_of_rank[rank] + row];",
        "x.global_of_home[x.home_row_of_rank[0] + row];",
    ),
    Mutant(
        "of lengths on the device, padding of a rank's own rows is tokens",
        OF_LENGTHS + "own_rows.h",
        "kNobody : is_token(global) ? row : padding_row(row);",
        "kNobody : row;",
    ),
    Mutant(
        "of lengths on the device, rows that see nothing count among those that do",
        OF_LENGTHS + "own_rows.h",
        "is_token(global) && !unseen_rows_of(t).query(global);",
        "is_token(global);",
    ),
    Mutant(
        "of lengths on the device, the same numbers in another order are the same lengths",
        OF_LENGTHS + "own_rows.h",
        "mixed(mixed(static_cast<uint64_t>(entry) + 1) + value);",
        "mixed(mixed(1) + value);",
    ),
    Mutant(
        "of lengths on the device, keys' padding is no part of what ranks agree on",
        OF_LENGTHS + "own_rows.h",
        "return 4 * (t.max_batch + 1);",
        "return 3 * (t.max_batch + 1);",
    ),
    Mutant(
        "later pieces of gathered rows begin with the first one's",
        OF_LENGTHS + "move_tables.cpp",
        "map += begin;",
        "map += 0 * begin;",
    ),
    Mutant(
        "ranks that gathered the same head add its gradients in one round",
        OF_LENGTHS + "move_tables.cpp",
        "std::max(round[rank], round[before] + 1);",
        "std::max(round[rank], round[before]);",
    ),
    Mutant(
        "gathered rows lie in rank order, and key blocks end at every chunk",
        STACK,
        "if (shard.size() < num_segments_below(segments)) {",
        "if (shard.size() < num_segments_below(segments) / 1'000'000) {",
    ),
    Mutant(
        "chunks of a sequence are gathered from the last to the first",
        STACK,
        "return a->pos < b->pos; });",
        "return a->pos > b->pos; });",
    ),
    Mutant(
        "stripes become one though one of them is missing",
        STACK,
        "s.pos != dealt.front()->pos + i || s.len",
        "s.len",
    ),
    Mutant(
        "a row lands one stripe too early",
        PLACES,
        "if (run.rows > 1) run.to_step = s->stride / to->stride;",
        "if (run.rows > 1) run.to_step = s->stride / to->stride - (s->stride > 2);",
    ),
    Mutant(
        "runs are joined though the second lies elsewhere",
        PLACES,
        "last.to + last.rows * last.to_step != run.to)",
        "last.to > run.to)",
    ),
    Mutant(
        "rows behind one that a buffer does not hold are forgotten",
        PLACES,
        "if (!are_runs) return i + 1;",
        "if (!are_runs) return s.len;",
    ),
    Mutant(
        "a chunk that lands apart is taken to lie together",
        "reference/transport/stack.cpp",
        "return row < 0 ? kByPosition : row;",
        "return row < 0 ? 0 : row;",
    ),
    Mutant(
        "the second peer's rows are spread from where the first one's begin",
        LOWER,
        "run.from += group->rows - runs.front().from;",
        "run.from -= runs.front().from;",
    ),
    Mutant(
        "gradients that land apart are collected in the order of arrival",
        LOWER,
        "moves.packs.push_back({move.to, move.from, transposed(std::move(move.runs))});",
        "moves.packs.push_back({move.to, move.from, std::move(move.runs)});",
    ),
    Mutant(
        "staging is not counted in the workspace",
        "reference/schedule/schedule_cost.cpp",
        "staged_sums = std::max(staged_sums, of.staged(step, Operand::kv));",
        "",
    ),
    Mutant(
        "owners of every n-th key are counted a row short",
        "reference/plan/key_owners.cpp",
        "const int held = home.rows_below(end) - home.rows_below(first);",
        "const int held = home.rows_below(end - 1) - home.rows_below(first);",
    ),
    Mutant(
        "the proof takes rows that the buffer does not hold",
        VERIFY,
        "plan_require(place >= 0,",
        "plan_require(place >= -1,",
    ),
    Mutant(
        "what is fetched from several owners lies in the order of arrival, whatever is said",
        "reference/transport/fetch.cpp",
        "m.row = is_one_block(runs) ? begin + runs[0].to : kByPosition;",
        "m.row = is_one_block(runs) ? m.row : kByPosition;",
    ),
    Mutant(
        "rows of one device land together where they should lie apart",
        "optimized/tables/move_tables.cpp",
        "to.heads(t.to) * t.step,",
        "to.heads(t.to),",
    ),
    Mutant(
        "the last row that nobody writes is not cleared",
        "optimized/tables/schedules/final_items.cpp",
        "if (reached < rows) left.push_back({reached, rows});",
        "if (reached + 1 < rows) left.push_back({reached, rows});",
    ),
]
