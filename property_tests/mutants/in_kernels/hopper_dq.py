"""One-line faults in how items of the Hopper backward share sums of dq."""

from mutants_list import Mutant

LAUNCH = "optimized/attention/hopper/backward/backward.cu"
NOTES = "optimized/attention/hopper/backward/produce/notes.cuh"
SEND = "optimized/attention/hopper/backward/send/results.cuh"
RESULTS = "optimized/attention/hopper/backward/consume/results.cuh"
PASSING = "optimized/attention/hopper/backward/produce/passing.cuh"
NOTES_SHOWN = "optimized/attention/hopper/backward/shared/notes.cuh"
WALK = "optimized/attention/hopper/backward/produce/query_walk.cuh"
TURN = "optimized/attention/hopper/machine/turn.h"
IN_PLACE = "optimized/program/in_place.cpp"
ROUNDS = "optimized/attention/hopper/backward/send/rounds.cuh"

MUTANTS_OF_HOPPER_DQ = [
    Mutant(
        "hopper, in turn: items add to dq while the one before still does",
        TURN,
        "  return value == turn;\n",
        "  return value + 1 >= turn;\n",
    ),
    Mutant(
        "hopper, in turn: nobody waits for his turn",
        SEND,
        "        wait_for_turn(word_of_turns(parameters, note), note.turn);\n",
        "        (void)0;\n",
    ),
    Mutant(
        "hopper, in turn: nobody lets the next one pass",
        PASSING,
        "      let_next_pass(word_of_turns(p_, note_of(passed_)));\n",
        "",
    ),
    Mutant(
        "hopper, in turn: at the last block of all nobody is let pass",
        PASSING,
        "at_the_end(uint32_t blocks) { let_pass(blocks); }",
        "at_the_end(uint32_t blocks) { let_pass(blocks > 0 ? blocks - 1 : 0); }",
    ),
    Mutant(
        "hopper, in turn: keys are waited for while another item waits for blocks that were sent",
        PASSING,
        "if (block > 2 && block - first_ <= kStages) let_pass(block - 2);",
        "",
    ),
    Mutant(
        "hopper, in turn: what was sent of a block is told where another's may be",
        "optimized/attention/hopper/backward/shared/blocks.cuh",
        "kSent = 2 * kStages;",
        "kSent = 1;",
    ),
    Mutant(
        "hopper, in turn: the first group has its place back while copies read it",
        SEND,
        "      wait_until_read<1>();\n",
        "",
    ),
    Mutant(
        "hopper, in turn: heads pass each other's turns",
        NOTES_SHOWN,
        "int64_t{note.row} * p.shape.num_heads + note.head;",
        "int64_t{note.row} * p.shape.num_heads;",
    ),
    Mutant(
        "hopper, in turn: turns are counted at the row that all blocks of 128 rows share",
        NOTES_SHOWN,
        "return p.turns + int64_t{note.row} *",
        "return p.turns + int64_t{note.row / 128 * 128} *",
    ),
    Mutant(
        "hopper, in turn: items that a window hides are waited for",
        "optimized/tables/sums/item_turns.h",
        "return begin / rows - (first > 0 ? first / rows : 0);",
        "return begin / rows - (first < 0 ? first / rows : 0);",
    ),
    Mutant(
        "hopper, in turn: items cut queries where each begins to be seen",
        WALK,
        "if (blocks_ != Blocks::of_item && threadIdx.x % 32 == 0) {",
        "if (blocks_ == Blocks::of_segment && threadIdx.x % 32 == 0) {",
    ),
    Mutant(
        "hopper, in turn: words hold anything at first",
        IN_PLACE,
        "                      parts_.home_q.cells * int64_t{sizeof(unsigned)}};",
        "                      0};",
    ),
    Mutant(
        "hopper, in turn: the next one is let pass before sums are in memory",
        SEND,
        "        wait_until_stored<0>();\n        arrive(barriers.dq_sent[",
        "        arrive(barriers.dq_sent[",
    ),
    Mutant(
        "hopper, in turn: the last one does not wait for the sums that it is brought",
        SEND,
        "    wait_for_turn(word_of_turns(parameters, *then), then->turn);\n",
        "",
    ),
    Mutant(
        "hopper, in turn: the last one leaves its own dq alone",
        NOTES,
        "return others >> 1 ? kCarriedOn : others ? kCarried : 0;",
        "return others >> 1 ? kCarriedOn : 0;",
    ),
    Mutant(
        "hopper, in turn: those between are brought sums, too, and add these again",
        NOTES,
        "return others >> 1 ? kCarriedOn : others ? kCarried : 0;",
        "return (others >> 1 ? kCarriedOn : 0) | (others & 1 ? kCarried : 0);",
    ),
    Mutant(
        "hopper, in turn: the first block of all is not brought what others have added",
        SEND,
        "    if (is_brought(first))\n",
        "    if (false)\n",
    ),
    Mutant(
        "hopper, in turn: the first one adds to what the place of its sums holds",
        SEND,
        "in_turn ? note.turn > 0 : adds(kDq)",
        "in_turn || adds(kDq)",
    ),
    Mutant(
        "hopper, first keys: others add to dq before these have stored",
        SEND,
        "if ((note.flags & kStores) == 0) wait_for_turn(word_of_first(p, note), 1);",
        "",
    ),
    Mutant(
        "hopper, first keys: others are told before dq is in memory",
        SEND,
        "  wait_until_stored<0>();\n  let_next_pass(word_of_first(p, note));\n",
        "  let_next_pass(word_of_first(p, note));\n  wait_until_stored<0>();\n",
    ),
    Mutant(
        "hopper, first keys: these add to what is there",
        SEND,
        "        send_queries(false);",
        "        send_queries(true);",
    ),
    Mutant(
        "hopper, first keys: these add to what is there, where dq leave in rounds",
        ROUNDS,
        "kDq == Dq::add && !(kFirstStores && (note.flags & kStores) != 0);",
        "kDq == Dq::add;",
    ),
    Mutant(
        "hopper, first keys: others store, too",
        NOTES,
        "p.first_stored != nullptr && item.begin == 0 ? kStores",
        "p.first_stored != nullptr ? kStores",
    ),
    Mutant(
        "hopper, fragments: sums of no launch are taken for some",
        IN_PLACE,
        "    return all && any;\n",
        "    return all;\n",
    ),
    Mutant(
        "hopper, first keys: rows that meet no keys keep what was there",
        IN_PLACE,
        "if (!in_any_order) all.of_queries",
        "if (!in_any_order && !first_stores_) all.of_queries",
    ),
    Mutant(
        "hopper, fragments: columns are rounded in the order of places",
        "optimized/exchange/move_home.cu",
        "*pack_at<2>(row + fragment_place(d + i));",
        "*pack_at<2>(row + d + i);",
    ),
    Mutant(
        "hopper, fragments: nobody scales the sums",
        IN_PLACE,
        "AccumulatorLayout::fragments, parts_.shape.softmax_scale};",
        "AccumulatorLayout::fragments, 1};",
    ),
    Mutant(
        "hopper, fragments: a lane's second place is its first",
        RESULTS,
        "(first ^ n % 4 * 8) + n / 4 * kQueryPanel + half * 1024;",
        "first + n / 4 * kQueryPanel + half * 1024;",
    ),
    Mutant(
        "hopper, fragments: taken of columns that fill none",
        LAUNCH,
        "takes_turns(s) &&\n         s.head_dim_qk % kFragment == 0;",
        "takes_turns(s);",
    ),
    Mutant(
        "hopper, fragments: what was dropped is added in the order of columns",
        "optimized/attention/seen_pairs.cuh",
        "in_fragments ? fragment_place(d) : d;",
        "d;",
    ),
    Mutant(
        "hopper, fragments of a rank: nobody scales the sums",
        "optimized/program/backward.cpp",
        "{dq, AccumulatorLayout::fragments, parts_.shape.softmax_scale}",
        "{dq, AccumulatorLayout::fragments, 1}",
    ),
    Mutant(
        "hopper, fragments of a rank: columns are rounded in the order of places",
        "optimized/program/backward.cpp",
        "{dq, AccumulatorLayout::fragments, parts_.shape.softmax_scale}",
        "{dq, AccumulatorLayout::rows, parts_.shape.softmax_scale}",
    ),
    Mutant(
        "hopper, fragments of a rank: one that sees nothing is taken to have some",
        "optimized/program/backward.cpp",
        "    bool any = false;  // without launches",
        "    bool any = true;  // without launches",
    ),
    Mutant(
        "hopper, softcap: sums in rows are left to an instance that there is not",
        LAUNCH,
        "only_cap() && has_instance(Options::softcap, dq)",
        "only_cap()",
    ),
]
