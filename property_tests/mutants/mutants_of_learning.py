"""Faults in what judges the exercises of the notebooks: an answer that is wrong must be refuted."""

from mutants_list import Mutant

CHECK = "bindings/ringside/learn/_check.py"
SHIPPED = "bindings/ringside/learn/_shipped.py"
EXERCISE = "bindings/ringside/learn/exercise_{}.py"
MUTANTS_OF_LEARNING = [
    Mutant(
        "an answer holds without being asked",
        CHECK,
        "            _search(judge, cases, asked.examples, seed)",
        "            judged = asked.examples",
    ),
    Mutant("a property is tried on one case", CHECK, "max_examples=examples", "max_examples=1"),
    Mutant("the first case found is shown", CHECK, "(seen[-1] if seen", "(seen[0] if seen"),
    Mutant(
        "an answer that raises is right",
        CHECK,
        "    except _Raised as error:\n        return None, str(error)",
        '    except _Raised:\n        return None, ""',
    ),
    Mutant(
        "every seed draws the same cases", CHECK, "hypothesis.seed(seed)(", "hypothesis.seed(0)("
    ),
    Mutant(
        "what is not written yet is wrong",
        CHECK,
        "    if _is_unwritten(",
        "    if not _is_unwritten(",
    ),
    Mutant("notebooks are written over", SHIPPED, "    if there:", "    if False:"),
    Mutant(
        "an unknown notebook is left out",
        SHIPPED,
        "    for number in wanted:\n        if number not in files:",
        "    wanted = [number for number in wanted if number in files]\n"
        "    for number in wanted:\n        if number not in files:",
    ),
    Mutant(
        "exercise 1: padding may have any position",
        EXERCISE.format(1),
        "if found != wanted:",
        "if found != wanted >= 0:",
    ),
    Mutant(
        "exercise 2: an interval may be too wide",
        EXERCISE.format(2),
        "if list(range(begin, end)) == allowed:",
        "if set(range(begin, end)) >= set(allowed):",
    ),
    Mutant(
        "exercise 3: out is not compared",
        EXERCISE.format(3),
        '                ("out", mine[0][row, 0], right[0][row, 0]),\n',
        "",
    ),
    Mutant(
        "exercise 3: all scores are near",
        EXERCISE.format(3),
        "st.one_of(near, near, far)",
        "st.one_of(near, near)",
    ),
    Mutant(
        "exercise 4: ten times a share will do", EXERCISE.format(4), "LIMIT = 1.3", "LIMIT = 13.0"
    ),
    Mutant(
        "exercise 4: no pack is proved",
        EXERCISE.format(4),
        "return small, real, some.map(_repeated)",
        "return real, some.map(_repeated)",
    ),
    Mutant(
        "exercise 5: any rank that is met is right",
        EXERCISE.format(5),
        "expected = table_of(case.cp_size)[case.rank][case.step]",
        "expected = got if 0 <= got < case.cp_size else 0",
    ),
]
