"""Where the bodies of functions lie in C++ text, without a compiler.

What it is not sure of is no body: a fault there is planted the slow way, and nothing else is lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

TOKEN = re.compile(
    r"""
    (?P<kept> [0-9](?:'?[\w.])* | (?!(?:u8|[uUL])?R")[A-Za-z_]\w* )
    | (?P<directive> ^[ \t]*\#(?:\\\n|/\*.*?\*/|[^\n])* )
    | //(?:\\\n|[^\n])*
    | /\*.*?\*/
    | (?:u8|[uUL])?R"(?P<mark>[^()\s\\]{0,16})\(.*?\)(?P=mark)"
    | "(?:\\.|[^"\\\n])*"
    | '(?:\\.|[^'\\\n])*'
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
BRACKET = re.compile(r"[][(){};]")
CLOSING = {"(": ")", "[": "]", "{": "}"}
TEMPLATE = re.compile(r"\btemplate\s*<")
SCOPE = re.compile(r"(?:inline\s+)?namespace\b|extern\s+0\s*$")
CLASS = re.compile(r"\b(?:class|struct|union)\b")
ASSIGNED = re.compile(r"(?<![=<>!])=(?!=)")
ENUM_OR_VALUE = re.compile(rf"\benum\b|{ASSIGNED.pattern}")
OPERATOR = re.compile(r"\boperator\s*(?:\(\)|\[\]|[^\s\w()]+)")
# What may stand between a function's parameters and its body; of brackets nothing but themselves.
TAIL = re.compile(
    r"(?:\s|const\b|noexcept\b|override\b|final\b|&|\(\))*(?:->.*)?(?:requires\b.*)?", re.DOTALL
)
INIT_LIST = re.compile(r"\s*(?:noexcept\s*(?:\(\))?\s*)?:(?!:).*(?:\(\)|\{\})\s*", re.DOTALL)
NO_FUNCTION = {"alignas", "decltype", "noexcept", "requires", "__attribute__"}


class Body(NamedTuple):
    """What stands between the braces is text[begin:end]."""

    begin: int
    end: int


class Unbalanced(Exception):
    """A bracket that nothing closes, or the other way round."""


def blanked(text: str) -> str:
    """As long as the text; a literal is 0 and spaces, a directive #, a comment nothing."""

    def blank(match: re.Match[str]) -> str:
        if match["kept"]:
            return match[0]
        first = "#" if match["directive"] else " " if match[0][0] == "/" else "0"
        return first + re.sub(r"[^\n]", " ", match[0][1:])

    return TOKEN.sub(blank, text)


def past(code: str, begin: int) -> int:
    """Behind the bracket that closes the one at begin."""
    awaited: list[str] = []
    for match in BRACKET.finditer(code, begin):
        if match[0] in CLOSING:
            awaited.append(CLOSING[match[0]])
        elif match[0] != ";" and awaited.pop() != match[0]:
            break
        if not awaited:
            return match.end()
    raise Unbalanced


def bodies(text: str) -> list[Body]:
    """Those of functions that are no part of others; none where brackets do not match.

    A body with a directive in it is left out: the line may mean something else a second time. So
    is one that only the compiler runs.
    """
    code = blanked(text)
    try:
        found = list(functions(code))
    except Unbalanced:
        return []
    return [
        body
        for head, body in found
        if "#" not in code[body.begin : body.end] and not re.search(r"\bconsteval\b", head)
    ]


def functions(code: str) -> Iterator[tuple[str, Body]]:
    """Walks through namespaces and classes; what a bracket holds elsewhere is passed by."""
    scopes = begin = place = 0
    while match := BRACKET.search(code, place):
        bracket, place = match[0], match.end()
        head = code[begin : place - 1]
        if bracket == "{" and is_scope(head):
            scopes, begin = scopes + 1, place
        elif bracket in CLOSING:
            end = past(code, place - 1)
            if bracket == "{" and is_function(head):
                yield head, Body(place, end - 1)
                begin = end
            place = end
        elif bracket in ";}":
            scopes, begin = scopes - (bracket == "}"), place
        if bracket in ")]" or scopes < 0:
            raise Unbalanced
    if scopes:
        raise Unbalanced


def is_scope(head: str) -> bool:
    """Whether what follows this is a namespace or a class."""
    plain = plain_head(head)
    if SCOPE.match(plain):
        return True
    return bool(CLASS.search(plain)) and not (ENUM_OR_VALUE.search(plain) or called(plain))


def is_function(head: str) -> bool:
    """Whether what follows this is a function's body."""
    plain = plain_head(head)
    return not ASSIGNED.search(plain) and called(plain)


def called(plain: str) -> bool:
    """Whether brackets in this are the parameters of a function whose body follows."""
    return any(
        (word := re.search(r"(\w+)\s*$", plain[: match.start()]))
        and word[1] not in NO_FUNCTION
        and (TAIL.fullmatch(plain, match.end()) or INIT_LIST.fullmatch(plain, match.end()))
        for match in re.finditer(r"\(\)", plain)
    )


def plain_head(head: str) -> str:
    """Without directives, parameters of templates and what brackets hold; operators are words."""
    plain = re.sub(r"#|\b(?:public|private|protected)\s*:(?!:)", " ", head)
    plain = OPERATOR.sub("operator_", emptied(plain))
    while match := TEMPLATE.search(plain):
        plain = plain[: match.start()] + plain[past_angle(plain, match.end()) :]
    return plain.strip()


def emptied(head: str) -> str:
    """Brackets hold nothing."""
    kept, place = [], 0
    while match := re.compile(r"[({\[]").search(head, place):
        kept += [head[place : match.end()], CLOSING[match[0]]]
        place = past(head, match.start())
    return "".join(kept) + head[place:]


def past_angle(plain: str, place: int) -> int:
    """Behind the > of a < that ends at place."""
    depth = 1
    while depth and (match := re.compile(r"(?<!-)[<>]").search(plain, place)):
        depth += 1 if match[0] == "<" else -1
        place = match.end()
    return place if not depth else len(plain)
