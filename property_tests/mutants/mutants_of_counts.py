"""Faults in what is counted: blocks, visits, needed rows, and the estimate of plans not built.

And in the balanced partition and in fetch, which go together on packs and are chosen by counts.
"""

from mutants_list import Mutant

ESTIMATE = "reference/estimate/"
MUTANTS_OF_COUNTS = [
    Mutant(
        "blocks are counted without their last",
        "reference/rows/blocks.h",
        "return rows / size + (rows % size != 0);",
        "return rows / size + (rows < size && rows > 0);",
    ),
    Mutant(
        "a partial block is taken for a whole one",
        "reference/rows/blocks.h",
        "inside.end == rows ? num_blocks(rows, size) : inside.end / size;",
        "num_blocks(inside.end, size);",
    ),
    # Keys of a chunked mask, dealt token by token: the queries of a block pass some of them over.
    Mutant(
        "key blocks in gaps are counted, too",
        "reference/rows/blocks.h",
        "return own.stride != 1 && !(mask.is_one_window() && partner.stride % own.stride == 0);",
        "return false;",
    ),
    Mutant(
        "a query block is visited once a tile",
        "reference/plan/tile_counts.cpp",
        "if (i + 1 < tiles.size() && tiles[i + 1].q == q) continue;",
        "",
    ),
    Mutant(
        "rows at home are counted as needed",
        "reference/plan/cost.cpp",
        "total.rows_needed(rank, i) -= rows_of_owner(needed, rank);",
        "",
    ),
    Mutant(
        "pairs end where the mask changes",
        "reference/plan/tiles.cpp",
        "(change - q.pos - 1) / q.stride + 1",
        "(change - q.pos) / q.stride + 1",
    ),
    Mutant(
        "sequences cut alike are counted once, not each",
        ESTIMATE + "line.cpp",
        "weight_ = weight;",
        "weight_ = std::min(weight, 1);",
    ),
    Mutant(
        "stripes before and behind a query are taken for alike",
        ESTIMATE + "line.cpp",
        "places.push_back(seen.end % q.stride);",
        "",
    ),
    Mutant(
        "what several queries see of a card is counted for each",
        ESTIMATE + "line.cpp",
        "is_only_query_ = queries.size() == 1;",
        "is_only_query_ = true;",
    ),
    Mutant(
        "cards count one too far",
        ESTIMATE + "line.cpp",
        "cards_[keys.end - first_key_] -= each;",
        "cards_.back() -= each;",
    ),
    Mutant(
        "rows between two runs that are fetched with them are forgotten",
        ESTIMATE + "seen_runs.cpp",
        "rows.begin - runs_.back().end <= gap)",
        "rows.begin - runs_.back().end <= 0)",
    ),
    Mutant(
        "what is fetched lies together wherever its last row does",
        ESTIMATE + "fetched.cpp",
        "for (int i = here + 1; i < there; ++i)",
        "for (int i = there; i < there; ++i)",
    ),
    Mutant(
        "what arrives before a key that is seen, and goes on in it, is forgotten",
        ESTIMATE + "fetched.cpp",
        "arrives(first - 1, stage))",
        "false)",
    ),
    Mutant(
        "what arrives ends where what is seen ends",
        ESTIMATE + "fetched.cpp",
        "+ last.len + block_size_.k;",
        "+ last.len;",
    ),
    Mutant(
        "what arrives behind a seen key is added again with the next",
        ESTIMATE + "fetched.cpp",
        "i + 1 < seen.size() ? seen[i + 1].begin : keys.end",
        "keys.end",
    ),
    Mutant(
        "neighbouring owners are of one stage",
        ESTIMATE + "fetched.cpp",
        "return owner == rank_ || before == rank_ || stage_[before] != stage_[owner];",
        "return owner == rank_ || before == rank_;",
    ),
    Mutant(
        "what arrives lies in the order of positions, whatever is fewer",
        ESTIMATE + "fetched.cpp",
        "joins < fetched_.stages[stage].messages &&",
        "joins < 0 &&",
    ),
    Mutant(
        "rows of a home go on in the next one's word",
        ESTIMATE + "seen_runs.cpp",
        "word = next_words[word];",
        "++word;",
    ),
    Mutant(
        "a gap of stripes as long as may be is not bridged",
        ESTIMATE + "fetched_stripes.cpp",
        "from - end[owner] <= gaps[owner];",
        "from - end[owner] < gaps[owner];",
    ),
    Mutant(
        "what arrives of a stripe ends where what is seen ends",
        ESTIMATE + "fetched_stripes.cpp",
        "behind[i] != 0 ? seen.length : seen.rows.end",
        "seen.rows.end",
    ),
    Mutant(
        "stripes that are bridged are as long as the first of them",
        ESTIMATE + "fetched_stripes.cpp",
        "{0, stripes_.rows(seq, end - 1)}",
        "{0, stripes_.rows(seq, owner)}",
    ),
    Mutant(
        "what is seen of stripes is the same wherever a document ends",
        ESTIMATE + "fetched_stripes.cpp",
        "rank_ + 1, stripes_.longer(seq), owners}",
        "rank_ + 1, owners}",
    ),
    Mutant(
        "stripes of several rows are one run",
        ESTIMATE + "fetched_stripes.cpp",
        "is_run = is_run && piece.rows.size() == 1 &&",
        "is_run = is_run &&",
    ),
    Mutant(
        "rows that arrive alone are those before which nothing is bridged",
        ESTIMATE + "fetched_stripes.cpp",
        "(before[i] | behind[i]) != 0",
        "before[i] != 0",
    ),
    Mutant(
        "the last row of a sequence lies apart from the first of the next",
        ESTIMATE + "fetched_stripes.cpp",
        "if (arrived[i].last_owner == arrived[i - 1].first_owner)",
        "if (false)",
    ),
    Mutant(
        "rows of two messages lie together",
        ESTIMATE + "fetched_stripes.cpp",
        "joints += goes_on;",
        "++joints;",
    ),
    Mutant(
        "stripes that arrive are met alike wherever an end lies",
        ESTIMATE + "fetched_stripes.cpp",
        "*std::ranges::upper_bound(places, owner);",
        "places.back();",
    ),
    Mutant(
        "query blocks that meet several stripes are visited by each",
        ESTIMATE + "fetched_stripes.cpp",
        "unite(visited_);",
        "",
    ),
    Mutant(
        "what several queries see of a card is added up",
        ESTIMATE + "line.cpp",
        "size += std::max(0, s.interval.end - std::max(end, s.interval.begin));",
        "size += std::max(s.interval.size(), end - end);",
    ),
    Mutant(
        "hands that meet query blocks end with the first",
        ESTIMATE + "line.cpp",
        "hands_[hands.end] -= weight_ * blocks;",
        "hands_[hands.begin + 1] -= weight_ * blocks;",
    ),
    Mutant(
        "every shard has a hand at most",
        ESTIMATE + "sorted_keys.cpp",
        "if (is_next && is_taken[shard]) are_in_hands_ = false;",
        "",
    ),
    Mutant(
        "keys at home that several stripes of a group see are taken off for each",
        ESTIMATE + "estimate.cpp",
        "unite(rows);",
        "",
    ),
    Mutant(
        "a rank that fetches nothing in a stage has no keys in it",
        ESTIMATE + "estimate.cpp",
        "if (!last) step.kv = plan_.home_kv[rank];",
        "",
    ),
    Mutant(
        "backward fetches keys that are at home",
        "reference/schedule/schedule_cost.cpp",
        "if (wanted == plan_.home_kv[of.rank]) return {};",
        "",
    ),
    Mutant(
        "a plan is refused only well beyond its limit",
        ESTIMATE + "plan_size.cpp",
        "require(tiles <= max_tiles,",
        "require(tiles <= max_tiles + 1,",
    ),
]

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
