"""Faults in pages: wrong texts, wrong colours, wrong marks, and proofs that nobody gave."""

from mutants_list import Mutant

SCRIPT = "bindings/ringside/_page/explorer.js"
DATA = "bindings/ringside/_page/data.py"
PAGE = "bindings/ringside/_page/page.py"
SHOW = "bindings/ringside/_plan/show.py"
MUTANTS_OF_EXPLORER = [
    Mutant(
        "a pair's row of the buffer is off by one",
        SCRIPT,
        "i < len ? row + i : null",
        "i < len ? row + i + 1 : null",
    ),
    Mutant(
        "a pair is told from the keys' row alone",
        SCRIPT,
        "from rows ${p.i} and ${p.j}`",
        "from rows ${p.j} and ${p.j}`",
    ),
    Mutant("all heads are drawn as one", SCRIPT, "if (has(heads, head)) each(", "if (true) each("),
    Mutant(
        "head groups are cut at kv heads",
        DATA,
        "*steps[:, 4:6].reshape(-1).tolist()",
        "*steps[:, 7:9].reshape(-1).tolist()",
    ),
    Mutant(
        "a colour is the next rank's",
        SCRIPT,
        "step[i] < s ? done : later)[rank[i]]",
        "step[i] < s ? done : later)[(rank[i] + 1) % plan.cp]",
    ),
    Mutant(
        "steps before look like steps after",
        SCRIPT,
        "(step[i] === s ? now : step[i] < s ? done : later)",
        "(step[i] === s ? now : step[i] > s ? done : later)",
    ),
    Mutant(
        "a window forgets its last key",
        SCRIPT,
        "ahead === null ? keys : place + ahead + 1",
        "ahead === null ? keys : place + ahead",
    ),
    Mutant(
        "a mask that is aligned at the bottom begins at the top",
        SCRIPT,
        "place = pos + shift[doc];",
        "place = pos;",
    ),
    Mutant(
        "rows of a long document are a pixel late",
        SCRIPT,
        "begin + Math.floor(i * (end - begin) / n)",
        "begin + Math.ceil(i * (end - begin) / n)",
    ),
    Mutant(
        "a tile's number is that among the tiles of its document",
        SCRIPT,
        "number: t.numbers[i++] ?? next",
        "number: next",
    ),
    Mutant(
        "the fault's place is not marked among rank and step",
        SCRIPT,
        "if (!known(fault?.rank, cp)) return;",
        "return;",
    ),
    Mutant("the fault's tile is not marked", SCRIPT, "if (!fault) return;", "return;"),
    Mutant(
        "what nobody computes looks like what nobody sees",
        SCRIPT,
        "rank[line + x] = HOLE;",
        "rank[line + x] = UNSEEN;",
    ),
    Mutant(
        "a refused plan is called proved",
        SCRIPT,
        "plan.fault ? `refused: ${plan.fault.text}`",
        "plan.fault ? `proved: ${plan.fault.text}`",
    ),
    Mutant(
        "a plan is shown unproved",
        SHOW,
        "_proof_in_words(plan.verify())",
        '"every visible pair computed once"',
    ),
    Mutant(
        "a bar is the pairs', not the blocks'",
        SCRIPT,
        'bar: ${count(of("blocks"), "block")}',
        'bar: ${count(of("pairs"), "block")}',
    ),
    Mutant(
        "two plans go their own ways",
        SCRIPT,
        "views.forEach((view) => view.tell(this.pairAt(event)))",
        "this.tell(this.pairAt(event))",
    ),
    Mutant("names end the script", PAGE, '.replace("<", "\\\\u003c")', '.replace("<", "<")'),
]
