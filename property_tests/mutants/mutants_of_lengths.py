"""Faults in ranks whose lengths only their devices know: conformance_test.cpp notices them."""

from mutants_list import Mutant

WALK = "optimized/program/walk.cpp"
MUTANTS_OF_LENGTHS = [
    Mutant(
        "of lengths on the device, gathered rows stay in staging's order",
        "optimized/program/parts.h",
        "{span(of.blocks), of.map.size > 0 ? tables.at(of.map) : nullptr};",
        "{span(of.blocks)};",
    ),
    Mutant(
        "of lengths on the device, lists count as full",
        "optimized/program/parts.h",
        "!any_lengths};",
        "true};",
    ),
    Mutant(
        "of lengths on the device, keys' gathered rows go by the map of queries",
        "optimized/ranks/parts_of_capacity.cpp",
        "== Operand::q ? q_.gathered : k_.gathered;",
        "== Operand::q ? q_.gathered : q_.gathered;",
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
