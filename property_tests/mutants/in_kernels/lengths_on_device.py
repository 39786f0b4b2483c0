"""One-line faults in what a device makes of lengths that only it knows: lists, rows, longest."""

from mutants_list import Mutant

LENGTHS = "optimized/program/fill_length_tables.cu"

MUTANTS_OF_DEVICE_LENGTHS = [
    Mutant(
        "lengths on the device: a part's items are put where those of the part before are",
        LENGTHS,
        "int begin = before + count(part);",
        "int begin = before;",
    ),
    Mutant(
        "lengths on the device: a warp's items are put where those of the warp before are",
        LENGTHS,
        "for (int before = 0; before < warp; ++before)",
        "for (int before = 0; before < 0; ++before)",
    ),
    Mutant(
        "lengths on the device: items that begin documents are put nowhere",
        LENGTHS,
        "if (!t.has_firsts_ahead) return;",
        "if (blocks > 0) return;",
    ),
    Mutant(
        "lengths on the device: an item of two blocks of keys carries no dq from one to the other",
        "optimized/program/room_for_lengths.cpp",
        "made.carries_dq = parts.longest_keys() > rows;",
        "made.carries_dq = false;",
    ),
    Mutant(
        "lengths on the device: a second chunk of sequences starts at row 0",
        "optimized/tables/length_tables.h",
        "for (int chunk = 0; chunk < seq / kChunk; ++chunk)",
        "for (int chunk = 0; chunk < 0; ++chunk)",
    ),
    Mutant(
        "lengths on the device: those that do not fit are used",
        LENGTHS,
        "if (*t.unfit != 0) {",
        "if (*t.unfit > 1) {",
    ),
    Mutant(
        "lengths on the device: after some that do not fit, none do",
        LENGTHS,
        "    *t.unfit = 0;  // everybody has read it\n",
        "",
    ),
    Mutant(
        "lengths on the device: the longest of all that there were is taken for these ones'",
        LENGTHS,
        "    *t.longest_keys = 0;\n",
        "",
    ),
    Mutant(
        "lengths on the device: the longest of those that do not fit is told",
        LENGTHS,
        "*t.status = 1, *t.longest_keys = 0;",
        "*t.status = 1;",
    ),
    Mutant(
        "lengths on the device: the longest of queries is taken for that of keys",
        LENGTHS,
        "if (&x == &t.k && ",
        "if (&x == &t.q && ",
    ),
    Mutant(
        "lengths on the device: of a warp, the first sequence is taken for the longest",
        LENGTHS,
        "const int longest = __reduce_max_sync(~0u, o.end - o.begin);",
        "const int longest = o.end - o.begin;",
    ),
    Mutant(
        "lengths on the device: a rank of several is taken to have all of the longest",
        LENGTHS,
        "(*t.longest_keys + t.cp_size() - 1) / t.cp_size();",
        "*t.longest_keys;",
    ),
    Mutant(
        "lengths on the device: of how many heads items are taken follows from no mask",
        "optimized/program/room_for_lengths.cpp",
        "lengths_.in_part = parts.meet_in_part(alone);",
        "lengths_.in_part = alone;",
    ),
    Mutant(
        "lengths on the device: a block that is alone leaves the buffers to others",
        LENGTHS,
        "if (blocks == 1)",
        "if (blocks < 1)",
    ),
    Mutant(
        "lengths on the device: items of a warp are stored at the first one's place",
        LENGTHS,
        "at = __shfl_sync(~0u, place, from);",
        "at = __shfl_sync(~0u, place, 0);",
    ),
    Mutant(
        "lengths on the device: rows of the lengths before stay mapped",
        LENGTHS,
        "x->home_of_global[i] = kNobody;",
        "if (i < 0) x->home_of_global[i] = kNobody;",
    ),
]
