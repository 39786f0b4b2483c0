"""Faults in the balanced partition and in fetch, which go together on packs."""

from mutants_list import Mutant

BALANCED = "reference/partition/balanced.cpp"
FETCH = "reference/transport/fetch.cpp"
MUTANTS_OF_PACKS = [
    Mutant(
        "rows of a document's first piece are dealt twice, of its last to nobody",
        BALANCED,
        "append(shard, p.seq, p.rows.begin, 1, p.rows.size());",
        "append(shard, p.seq, p.rows.begin / 2, 1, p.rows.size());",
    ),
    Mutant(
        "ties between pieces are broken the other way",
        BALANCED,
        "std::tuple(a.density, a.cost, -a.seq, -a.rows.begin) <",
        "std::tuple(a.density, a.cost, a.seq, -a.rows.begin) <",
    ),
    Mutant(
        "ranks are filled beyond their share of rows",
        BALANCED,
        "all * 101 / (100 * cp_size_)",
        "all * 108 / (100 * cp_size_)",
    ),
    Mutant(
        "the first deal is taken, balanced or not",
        BALANCED,
        "constexpr int64_t kPercentOfMean = 105;",
        "constexpr int64_t kPercentOfMean = 1'000'000;",
    ),
    Mutant(
        "keys of other lengths lie where queries of their position lie",
        BALANCED,
        "if (rows_q == rows_k || row == rows_q)",
        "if (row < rows_k || row == rows_q)",
    ),
    Mutant(
        "work is counted without the last block",
        "reference/partition/block_costs.cpp",
        "return (last.end + kBlockRows - 1) / kBlockRows",
        "return last.end / kBlockRows",
    ),
    Mutant(
        "a fetched run loses its last row",
        FETCH,
        "const int end = std::min(rows.end, segment->row_end()) - segment->row;",
        "const int end = std::min(rows.end - 1, segment->row_end()) - segment->row;",
    ),
    Mutant(
        "a row that is seen is not fetched",
        "reference/plan/tiles.cpp",
        "parts.push_back({tile.k.row + rows.begin, tile.k.row + rows.end});",
        "parts.push_back({tile.k.row + rows.begin + (rows.size() > 1), tile.k.row + rows.end});",
    ),
    Mutant(
        "a stage is lost",
        FETCH,
        "if (place == used_.end() || *place != stage) used_.insert(place, stage);",
        "if (place == used_.end()) used_.insert(place, stage);",
    ),
    Mutant(
        "home does not stay for the next exchange",
        FETCH,
        "if (!last) keep_home(rank, step.before);",
        "if (!last && stage > 0) keep_home(rank, step.before);",
    ),
    Mutant(
        "two blocks that came from one cell are summed into it at once",
        "optimized/tables/move_tables.cpp",
        "{ next = round + 1; }",
        "{ next = round; }",
    ),
]
