"""Faults in what judges the exercises of the notebooks, and in what their cells show.

An answer that is wrong must be refuted.
"""

from mutants_list import Mutant

CHECK = "bindings/ringside/learn/_check.py"
SHIPPED = "bindings/ringside/learn/_shipped.py"
EXERCISE = "bindings/ringside/learn/exercise_{}.py"
MERGING = "bindings/ringside/learn/_merging.py"
MOVES = "bindings/ringside/learn/_moves.py"
TIMES = "bindings/ringside/learn/_times.py"
TRAFFIC = "bindings/ringside/learn/_traffic.py"
RULES = "bindings/ringside/learn/faults/rules.py"
RING = "bindings/ringside/learn/faults/ring.py"
HABITS = "bindings/ringside/learn/faults/habits.py"
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
MUTANTS_OF_NOTEBOOKS = [
    Mutant(
        "exercise 6: fewer bytes will do",
        EXERCISE.format(6),
        "    if got == expected:",
        "    if got <= expected:",
    ),
    Mutant(
        "exercise 6: no ring of groups is drawn",
        EXERCISE.format(6),
        "draw(st.integers(1, 3)))",
        "1)",
    ),
    Mutant("results never come home", TRAFFIC, " + cost.result_bytes_received)", ")"),
    Mutant("exercise 7: any end will do", EXERCISE.format(7), "CLOSE = 1e-6", "CLOSE = 1e6"),
    Mutant(
        "exercise 7: links are as quick as tiles are slow",
        EXERCISE.format(7),
        "sampled_from([100.0, 10.0, 1000.0, 0.0625])",
        "just(0.0625)",
    ),
    Mutant(
        "all that is exchanged is hidden",
        TIMES,
        "time.exposed > share * time.total",
        "time.exposed > time.total",
    ),
    Mutant(
        "exercise 8: less may come back",
        EXERCISE.format(8),
        "if value != y[copies].sum():",
        "if value > y[copies].sum():",
    ),
    Mutant(
        "exercise 8: rings alone are drawn",
        EXERCISE.format(8),
        "            head_dims=st.just(1),",
        '            head_dims=st.just(1),\n            comms=st.just("p2p"),',
    ),
    Mutant(
        "cells are held by whom they were held before",
        MOVES,
        "[x.size for x in moved]",
        "[x.size for x in moved][::-1]",
    ),
    Mutant(
        "exercise 9: a bound need not see bfloat16",
        EXERCISE.format(9),
        "    if coarse <= got:",
        "    if coarse <= 0 * got:",
    ),
    Mutant(
        "exercise 9: no roundings go one way",
        EXERCISE.format(9),
        "unlucky=st.booleans()",
        "unlucky=st.just(False)",
    ),
    Mutant(
        "values are read in padding",
        MERGING,
        "np.where((of_k < n_k)[:, None], v[of_pack], 0.0)",
        "v[of_pack]",
    ),
    Mutant(
        "exercise 10: a check that flags nothing is right",
        EXERCISE.format(10),
        "    if got is (not suspect.cured):",
        "    if got is (not suspect.cured) or not got:",
    ),
    Mutant(
        "exercise 10: a check that flags everything is right",
        EXERCISE.format(10),
        "    if got is (not suspect.cured):",
        "    if got is (not suspect.cured) or got:",
    ),
    Mutant(
        "exercise 10: every model is cured",
        EXERCISE.format(10),
        "    for cured in (False, True)",
        "    for cured in (True, True)",
    ),
    Mutant(
        "a cure reads padding",
        RULES,
        "    return np.where(valid, v, 0.0)",
        "    return v",
    ),
    Mutant(
        "a fault is none: kv heads in groups",
        RULES,
        "    return head % num_kv_heads",
        "    return head // (num_heads // num_kv_heads)",
    ),
    Mutant(
        "the ring forgets the scale in backward",
        RING,
        ".T[..., None]) * q.shape[2] ** -0.5",
        ".T[..., None])",
    ),
    Mutant(
        "the usual test looks at gradients, too",
        HABITS,
        "compared = pairs if habit.backward else pairs[:1]",
        "compared = pairs",
    ),
]
