"""One text that holds many faults: a number, chosen when the program starts, says which is on.

The body of a function with faults stands there once for each of them and once as it was. The number
is that of the environment variable RINGSIDE_FAULT; while the compiler runs a function, none is on.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Mapping

from mutants_list import Mutant

from .bodies import Body, Unbalanced, blanked, bodies, past

VARIABLE = "RINGSIDE_FAULT"
HEADER, SOURCE = "reference/support/fault.h", "reference/support/fault.cpp"
ADDED = {
    HEADER: """\
#pragma once

#include <type_traits>

[[gnu::visibility("hidden")]] extern int ringside_fault;

constexpr bool ringside_fault_is(int number) {
  return !std::is_constant_evaluated() && ringside_fault == number;
}
""",
    SOURCE: f"""\
#include "{HEADER}"

#include <cstdlib>

int ringside_fault = 0;

namespace {{

[[gnu::constructor(101)]] void read_fault() {{  // before any initialiser
  if (const char* number = std::getenv("{VARIABLE}")) ringside_fault = std::atoi(number);
}}

}}  // namespace
""",
}


def number_of(mutant: Mutant) -> int:
    """Of its name alone: who adds a fault builds its file again, and no other."""
    return zlib.crc32(mutant.name.encode()) >> 1 or 1


def place_of(mutant: Mutant, text: str, found: list[Body]) -> Body | None:
    """The body that holds all of a fault's text, if one does and still is one with the fault."""
    begin = text.find(mutant.old)
    end = begin + len(mutant.old)
    for body in found:
        if body.begin <= begin and end <= body.end:
            return body if is_closed(with_fault(mutant, text, body)) else None
    return None


def with_fault(mutant: Mutant, text: str, body: Body) -> str:
    return text[body.begin : body.end].replace(mutant.old, mutant.new)


def is_closed(inner: str) -> bool:
    """Whether it still ends where the function ends."""
    code = "{" + blanked(inner) + "}"
    try:
        return past(code, 0) == len(code)
    except Unbalanced:
        return False


def switched(text: str, faults: Mapping[int, Mutant]) -> tuple[str, set[int]]:
    """The text with those of its faults that can be switched, and their numbers."""
    found = bodies(text)
    held: dict[Body, dict[int, Mutant]] = defaultdict(dict)
    for number, mutant in faults.items():
        if body := place_of(mutant, text, found):
            held[body][number] = mutant
    for body in sorted(held, reverse=True):
        copies = "".join(
            f" if (ringside_fault_is({number})) {{{with_fault(mutant, text, body)}}} else"
            for number, mutant in held[body].items()
        )
        inner = text[body.begin : body.end]
        text = f"{text[: body.begin]}{copies} {{{inner}}}{text[body.end :]}"
    numbers = {number for of_body in held.values() for number in of_body}
    return (f'#include "{HEADER}"\n{text}' if numbers else text), numbers
