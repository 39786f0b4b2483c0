"""Faults in the interpreter of PTX where it refuses what a GPU would let pass in silence."""

from mutants_list import Mutant

BARRIERS = "optimized/interpreter/instructions/barriers.cpp"
MUTANTS_OF_INTERPRETER = [
    Mutant(
        "interpreter: nobody need ask for a phase of a barrier",
        BARRIERS,
        "if (!arrivals.before_was_asked_for)",
        "if (false)",
    ),
    Mutant(
        "interpreter: who is ahead may count in another's place",
        BARRIERS,
        "before.visit != warp.visit[lane])",
        "false)",
    ),
    Mutant(
        "interpreter: nobody may arrive for others",
        BARRIERS,
        "if (before.thread == thread && before.visit != warp.visit[lane])",
        "if (before.thread == thread)",
    ),
    Mutant(
        "interpreter: what one lane has come to, all lanes of its warp have",
        BARRIERS,
        "++warp.visit[lane];",
        "for (uint32_t& each : warp.visit) ++each;",
    ),
    Mutant(
        "interpreter: arrivals of a phase count in the next",
        BARRIERS,
        "if (barrier.settle()) arrivals_at(warp, i, lane).end();",
        "barrier.settle();",
    ),
]
