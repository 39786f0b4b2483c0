"""Faults in what runs on GPUs between processes: waits, joins, signals, aborts, spoiled results.

And in ranks whose lengths only their devices know: conformance_test.cpp notices these.
"""

from mutants_list import Mutant

WALK = "optimized/program/walk.cpp"
PEER = "optimized/links/peer_communicator.cpp"
GUARD = "optimized/links/guard.cpp"
MUTANTS_OF_LINKS = [
    Mutant(
        "tiles and messages do not wait for each other",
        WALK,
        "for (const int before : op.after) pass_.events[turn.member][before].hold(stream_of(op));",
        "static_cast<void>(op);",
    ),
    Mutant(
        "the stream of messages is not joined to the caller's",
        "optimized/program/walk.h",
        "    join_->hold(stream_);\n",
        "",
    ),
    Mutant(
        "tiles of later steps forget the sums of those before",
        "optimized/ranks/parts.cpp",
        "schedule.item_sums(before) == sums) return false;",
        "schedule.item_sums(before) == sums) return true;",
    ),
    Mutant(
        "sums that one item did not write are not cleared",
        WALK,
        "pass_.final_rows[turn.member].sums_unused;",
        "pass_.final_rows[turn.member].all;",
    ),
    Mutant(
        "sums are written over rows that are final",
        "optimized/exchange/move_home.cu",
        "if (row == kWritten) return;",
        "",
    ),
    Mutant(
        "what is added at the end is added once more where it arrives",
        WALK,
        "at_end->has(turn.operation)) return tell(turn);",
        "at_end->has(-2)) return tell(turn);",
    ),
    Mutant(
        "kept keys are taken wherever they begin",
        WALK,
        "reinterpret_cast<uintptr_t>(kept) % 16 == 0)",
        "kept != nullptr)",
    ),
    Mutant(
        "a merge weighs what is there like what arrives",
        "optimized/exchange/move.cu",
        "weighted(w.a, sum[d], w.b, x[d])",
        "weighted(w.b, sum[d], w.a, x[d])",
    ),
    Mutant(
        "what is added at the end is of the row itself",
        "optimized/exchange/move_home.cu",
        "other = term.of_home[row];",
        "other = row;",
    ),
    Mutant(
        "a sum that is added at the end begins with that before",
        "optimized/exchange/move_home.cu",
        "add_to(y, sum), sum = {};",
        "add_to(y, sum);",
    ),
    Mutant(
        "the last term of what is added at the end is left out",
        "optimized/exchange/move_home.cu",
        "k < added.count; ++k)",
        "k + 1 < added.count; ++k)",
    ),
    Mutant(
        "a sender does not wait until the receiver's buffers are free",
        PEER,
        "  wait_for_word(ready, stream_);\n",
        "",
    ),
    Mutant(
        "a receiver does not wait until its rows have arrived",
        PEER,
        "if (receives_[process]) wait_for_word(arrived(process, round_), stream_);",
        "static_cast<void>(process);",
    ),
    Mutant(
        "an abort frees no stream",
        "optimized/links/links.cpp",
        "std::this_thread::sleep_for(kReleaseEvery)) communicator()->abort();",
        "std::this_thread::sleep_for(kReleaseEvery)) continue;",
    ),
    Mutant(
        "what stands still is never given up",
        GUARD,
        "if (now != seen || now.started == now.completed) looks = 0;",
        "looks = 0;",
    ),
    Mutant(
        "a call that moves is given up",
        GUARD,
        "if (now != seen || now.started == now.completed) looks = 0;",
        "if (now.started == now.completed) looks = 0;",
    ),
    Mutant(
        "a call that has ended is given up",
        GUARD,
        "if (now != seen || now.started == now.completed) looks = 0;",
        "if (now != seen) looks = 0;",
    ),
    Mutant(
        "results of a call that was given up look like results",
        "optimized/links/call_words.cu",
        "  if (failed) {\n",
        "  if (failed && number < 0) {\n",
    ),
    Mutant(
        "tokens that came are taken for those that should have",
        "optimized/links/call_words.cu",
        "    differs |= *word != expected[i].token;\n",
        "",
    ),
    Mutant(
        "what a layer keeps lies in the workspace, where the next layer's keys come",
        WALK,
        "    base = kept(member);\n",
        "    static_cast<void>(kept(member));\n",
    ),
    Mutant(
        "the largest scores of other processes are overlooked",
        "optimized/links/max_logit.cu",
        "if (process == others.mine) continue;",
        "continue;",
    ),
]

MUTANTS_OF_LENGTHS = [
    Mutant(
        "of lengths on the device, gathered rows stay in staging's order",
        "optimized/program/parts.h",
        "{span(of.blocks), of.map.size > 0 ? tables.at(of.map) : nullptr};",
        "{span(of.blocks)};",
    ),
    Mutant(
        "of lengths on the device, keys' gathered rows go by the map of queries",
        "optimized/ranks/parts_of_capacity.cpp",
        "== Operand::q ? q_.gathered : k_.gathered;",
        "== Operand::q ? q_.gathered : q_.gathered;",
    ),
    Mutant(
        "a rehearsal of messages leaves out the word of lengths",
        "optimized/ranks/rehearse.cpp",
        "    tell_lengths(pass);",
        "    static_cast<void>(pass);",
    ),
    Mutant(
        "ranks do not cut their own rows out of new lengths",
        "optimized/ranks/program.cpp",
        "  cut_own_rows(parts_->lengths, parts_->tables.at(own), own.size, stream);",
        "static_cast<void>(own);",
    ),
    Mutant(
        "where lengths differ, the status stays that of lengths that fit",
        "optimized/links/lengths_word.cu",
        "if (any) *status = 1;",
        "if (any) *status += 0;",
    ),
    Mutant(
        "where lengths fit again, ranks forget that some did not before",
        "optimized/links/lengths_word.cu",
        "if (any) *status = 1;",
        "*status = any;",
    ),
    Mutant(
        "a process compares its word with what lies in its own place",
        "optimized/links/lengths_word.cu",
        "process != words.mine && words.data[process] != *words.own;",
        "words.data[process] != *words.own;",
    ),
    Mutant(
        "results of an empty batch where nobody's lengths differ",
        "optimized/links/lengths_word.cu",
        "if (*differ == 0) return;",
        "if (*differ == 2) return;",
    ),
    Mutant(
        "where lengths differ, results are whatever came of them",
        WALK,
        "  empty_if(differ, results, stream_);\n",
        "",
    ),
    Mutant(
        "lse of other lengths is 0, not -inf",
        "optimized/program/forward.cpp",
        "emptied(calls_[member].lse, kNothing)",
        "emptied(calls_[member].lse)",
    ),
    Mutant(
        "gradients of other lengths stay",
        "optimized/program/backward.cpp",
        "    agree_on_lengths(Pass::backward, empty);\n",
        "",
    ),
    Mutant(
        "a process tells all others what lies in the workspace in place of its word",
        WALK,
        "others->send(process, {own, bytes, bytes, 1},",
        "others->send(process, {at(place), bytes, bytes, 1},",
    ),
    Mutant(
        "the word of lengths goes on from the one before",
        "optimized/links/lengths_word.cu",
        "  RINGSIDE_CUDA(cudaMemsetAsync(word, 0, sizeof(*word), stream));\n",
        "",
    ),
]
