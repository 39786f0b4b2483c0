"""Lengths as people have them: a column of a CSV, a plain list, JSON, or cu_seqlens."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ringside._json import parsed

COLUMNS = ("tokens", "length", "lengths", "num_tokens")  # that hold lengths, in a CSV of several
OFFSETS = "cu_seqlens"
LARGEST = 2**31 - 1
EXPECTED = f"expected an integer, 0 to {LARGEST}"


class Number(NamedTuple):
    """One integer, and where it stands: `where` begins an error."""

    value: int
    where: str


def lengths_from(text: str, source: str, *, offsets: bool) -> npt.NDArray[np.int32]:
    """[documents] int32 of a text; ValueError names source and line of what is wrong."""
    text = text.removeprefix("\ufeff")
    if text.lstrip()[:1] in ("[", "{"):
        numbers, named = _of_json(text, source)
    else:
        numbers, named = _of_lines(text, source)
    if offsets or named == OFFSETS:
        return _differences(numbers, source)
    return np.array([number.value for number in numbers], dtype=np.int32)


def _of_json(text: str, source: str) -> tuple[list[Number], str]:
    try:
        found = parsed(text)
    except ValueError as error:
        raise ValueError(f"{source}: {error}; expected JSON, a list of lengths") from None
    name = ""
    if isinstance(found, dict):
        known = [key for key in (*COLUMNS, OFFSETS) if key in found]
        if len(known) != 1:
            raise ValueError(
                f"{source}: an object with {_listed(list(found))}; expected one list of integers, "
                f'under "lengths" or "{OFFSETS}"'
            )
        name = known[0]
        found = found[name]
    if not isinstance(found, list):
        raise ValueError(f"{source}: got {found!r}; expected a list of integers")
    return [_number(x, f"{source}, entry {i}") for i, x in enumerate(found)], name


def _of_lines(text: str, source: str) -> tuple[list[Number], str]:
    lines = list(_lines(text, source))
    if not lines:
        raise ValueError(f"{source}: got nothing; expected lengths, one integer a line")
    where, words = lines[0]
    if all(_is_number(word) for word in words):
        return list(_of_list(lines)), ""
    if any(_is_number(word) for word in words):
        _number_of_word(next(word for word in words if not _is_number(word)), where)
    column = _column(words, where)
    if not lines[1:] and words[column].lower() not in (*COLUMNS, OFFSETS):
        raise ValueError(f"{where}: {', '.join(words)}; expected lengths, here or below that name")
    numbers = []
    for at, cells in lines[1:]:
        if len(cells) != len(words):
            raise ValueError(f"{at}: {len(cells)} cells; expected {len(words)}, as in {where}")
        numbers.append(_number_of_word(cells[column], at))
    return numbers, words[column].lower()


def _of_list(lines: Sequence[tuple[str, list[str]]]) -> Iterator[Number]:
    """One integer a line, or all in one line: several columns are not taken for a list."""
    for where, words in lines:
        if len(words) > 1 and len(lines) > 1:
            raise ValueError(
                f"{where}: {len(words)} numbers; expected one a line, all of them in one line, or "
                f"a first line that names the columns ({', '.join(COLUMNS)} or {OFFSETS} is read)"
            )
        for word in words:
            yield _number_of_word(word, where)


def _lines(text: str, source: str) -> Iterator[tuple[str, list[str]]]:
    """The words of each line that holds any, and where it stands; # begins a comment."""
    for number, line in enumerate(text.splitlines(), 1):
        kept = line.split("#")[0].strip()
        if not kept:
            continue
        cells = next(csv.reader([kept.rstrip(",")], skipinitialspace=True))
        words = [cell.strip() for cell in cells]
        if all(words) and all(_is_number(word) for part in words for word in part.split()):
            words = [word for part in words for word in part.split()]
        yield f"{source}, line {number}", words


def _column(header: list[str], where: str) -> int:
    """Which cell of a line holds the length; the only one may have any name."""
    if len(header) == 1:
        if header[0][:1].isalpha():
            return 0
        raise ValueError(f"{where}: {header[0]!r}; expected a name of a column, or an integer")
    known = [i for i, name in enumerate(header) if name.lower() in (*COLUMNS, OFFSETS)]
    if len(known) != 1:
        raise ValueError(
            f"{where}: columns {_listed(header)}; expected one of them to be called "
            f"{', '.join(COLUMNS)} or {OFFSETS}"
        )
    return known[0]


def _number(found: Any, where: str) -> Number:
    """Refuses what is no length, as it stands there."""
    if type(found) is not int or not 0 <= found <= LARGEST:
        raise ValueError(f"{where}: {found!r}; {EXPECTED}")
    return Number(found, where)


def _number_of_word(word: str, where: str) -> Number:
    if not _is_number(word):
        raise ValueError(f"{where}: {word or 'an empty cell'}; {EXPECTED}")
    return _number(int(word), where)


def _is_number(word: str) -> bool:
    return word.removeprefix("-").removeprefix("+").isdecimal() and word.isascii()


def _differences(numbers: Sequence[Number], source: str) -> npt.NDArray[np.int32]:
    if not numbers or numbers[0].value:
        got = f"{numbers[0].where}: {numbers[0].value}" if numbers else f"{source}: got nothing"
        raise ValueError(f"{got}; expected offsets that begin with 0")
    for before, after in itertools.pairwise(numbers):
        if after.value < before.value:
            raise ValueError(
                f"{after.where}: {after.value} after {before.value}; expected offsets that never "
                "fall. Lengths are read without --cu-seqlens (cu_seqlens=False)"
            )
    return np.diff(np.array([number.value for number in numbers])).astype(np.int32)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names) or "nothing"
