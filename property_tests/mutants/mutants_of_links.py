"""Faults in what runs on GPUs between processes: waits, joins, signals, aborts, spoiled results."""

from mutants_list import Mutant

WALK = "optimized/program/walk.cpp"
PEER = "optimized/links/peer_communicator.cpp"
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
        "&& all_sole(turn.member);",
        "&& has_sole(turn.member);",
    ),
    Mutant(
        "sums are written over rows that are final",
        "optimized/exchange/move_home.cu",
        "if (row == kWritten) return;",
        "",
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
        "results of a call that was given up look like results",
        "optimized/links/call_words.cu",
        "  if (*unfit == 0) return;",
        "  if (*unfit != 2) return;",
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
