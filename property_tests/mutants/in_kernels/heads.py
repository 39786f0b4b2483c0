"""One-line faults in how heads share a backward launch: how many at a time, and which apart."""

from mutants_list import Mutant

HEADS = "optimized/tables/heads_at_a_time.h"
PARTS = "optimized/program/parts.cpp"

MUTANTS_OF_HEADS = [
    Mutant(
        "hopper: one item's part of a head's work is taken for its part of all",
        HEADS,
        "return longest * processors / heads > kMostIdle;",
        "return longest * processors > kMostIdle + 0 * heads;",
    ),
    Mutant(
        "hopper: heads go by sections, however long the last one's longest item",
        HEADS,
        "constexpr double kMostIdle = 0.1;",
        "constexpr double kMostIdle = 10;",
    ),
    Mutant(
        "eight heads of long documents have items at a time, whose rows the cache does not hold",
        HEADS,
        "return longest < 16384 ? 8 : longest < 32768 ? 4 : 2;",
        "return 8;",
    ),
    Mutant(
        "heads: of documents all of whose rows are met, as many have items as of others",
        HEADS,
        "if (!in_part) return",
        "if (!in_part && longest < 0) return",
    ),
    Mutant(
        "heads: key heads that others share go two at a time, though all rows are met",
        PARTS,
        "in_parts ? family.heads_at_a_time : 1, heads);",
        "family.heads_at_a_time, heads);",
    ),
    Mutant(
        "heads: those of another rank's keys are taken apart",
        PARTS,
        "< kLongStep || !keys.in_part)) return 1;",
        "< kLongStep)) return 1;",
    ),
    Mutant(
        "heads: those that no mask hides anything of are taken apart",
        PARTS,
        "keys.most_rows_met >= kShortWalk && keys.is_even",
        "keys.most_rows_met < 0 && keys.is_even",
    ),
    Mutant(
        "heads taken apart: each begins with nothing",
        "optimized/program/parts.h",
        "bool can_start() const { return head_parts == 1; }",
        "bool can_start() const { return true; }",
    ),
    Mutant(
        "heads taken apart: whoever leaves dk and dv takes them for final",
        "optimized/ranks/parts.cpp",
        "summed_up ? FinalItems{} : find_final(schedule, items)",
        "summed_up && items.empty() ? FinalItems{} : find_final(schedule, items)",
    ),
    Mutant(
        "heads taken apart: in deterministic passes, too",
        "optimized/program/backward.cpp",
        "options_.deterministic ? 1 : tables.head_parts;",
        "tables.head_parts;",
    ),
]
