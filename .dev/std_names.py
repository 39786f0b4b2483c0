"""Whether a C++ file includes what it names of the standard library, itself or by a file of ours.

Where such headers are precompiled no compiler says so, elsewhere only if no other one brings it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

# A name in several headers is taken from any of them. Names of other headers are not looked at.
HEADERS = {
    "algorithm": "all_of any_of binary_search clamp copy_n count count_if equal fill fill_n find "
    "find_if is_sorted max min minmax minmax_element partition_point ranges::all_of ranges::any_of "
    "ranges::copy ranges::count ranges::count_if ranges::equal ranges::equal_range ranges::fill "
    "ranges::find ranges::find_if ranges::find_if_not ranges::is_sorted ranges::lower_bound "
    "ranges::max_element ranges::min_element ranges::minmax_element ranges::none_of "
    "ranges::reverse ranges::sort ranges::stable_sort ranges::upper_bound replace rotate sort "
    "stable_sort unique upper_bound",
    "array": "array",
    "atomic": "atomic atomic_ref atomic_thread_fence",
    "bit": "bit_cast bit_width countl_zero countr_one countr_zero popcount",
    "chrono": "chrono::milliseconds chrono::seconds chrono::steady_clock",
    "cmath": "ceil copysign exp2 fabs floor fma isfinite isinf isnan ldexp log2 nan nearbyint "
    "nextafter signbit sqrt tanh trunc",
    "condition_variable": "condition_variable",
    "cstdio": "fflush fprintf printf snprintf",
    "cstdlib": "abort aligned_alloc free getenv strtoull",
    "cstring": "memcpy memmove memset strchr strerror strncmp",
    "deque": "deque",
    "exception": "current_exception exception_ptr rethrow_exception",
    "functional": "function greater less",
    "iomanip": "setprecision setw",
    "limits": "numeric_limits",
    "list": "list",
    "map": "map multimap",
    "memory": "make_shared make_unique shared_ptr unique_ptr",
    "mutex": "lock_guard mutex unique_lock",
    "numeric": "accumulate iota partial_sum",
    "optional": "nullopt optional",
    "queue": "priority_queue",
    "random": "lognormal_distribution mt19937 mt19937_64 normal_distribution random_device "
    "seed_seq uniform_int_distribution",
    "set": "multiset set",
    "span": "as_bytes as_writable_bytes span",
    "sstream": "ostringstream",
    "stdexcept": "invalid_argument logic_error out_of_range runtime_error",
    "string": "stoi stoll stoul stoull string to_string",
    "string_view": "string_view",
    "thread": "jthread this_thread::get_id this_thread::sleep_for this_thread::yield thread",
    "tuple": "tie tuple",
    "unordered_map": "unordered_multimap",
    "utility": "as_const cmp_less exchange in_range",
    "vector": "vector",
}
HEADER_OF = {name: header for header, names in HEADERS.items() for name in names.split()}
NAME = re.compile(r"\bstd::((?:ranges::|chrono::|this_thread::)?\w+)")
INCLUDE = re.compile(r'^#include ([<"])([^>"]+)[>"]', re.M)
SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}
NO_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S)


def code_of(text: str) -> str:
    """Without comments, and without what stands between quotes.

    >>> code_of('f("std::map");  // a std::set')
    'f();  '
    """
    return NO_CODE.sub("", text)


def missing(text: str, headers: set[str]) -> Iterator[tuple[str, str]]:
    """(name, header) of what is named without one of these headers.

    >>> list(missing("std::map<int, std::string> names;", {"string"}))
    [('map', 'map')]
    """
    for name in sorted(set(NAME.findall(code_of(text)))):
        if (header := HEADER_OF.get(name)) and header not in headers:
            yield name, header


def headers_of(path: Path, files: set[Path], read: Callable[[Path], str]) -> set[str]:
    """Of the standard library, that a file includes, or files of ours that it includes."""
    headers: set[str] = set()
    seen, rest = {path}, [path]
    while rest:
        for kind, name in INCLUDE.findall(read(rest.pop())):
            if kind == "<":
                headers.add(name)
            elif (ours := Path(name)) in files and ours not in seen:
                seen.add(ours)
                rest.append(ours)
    return headers


def missing_includes(files: list[Path], read: Callable[[Path], str]) -> Iterator[str]:
    """What files name of the standard library, and neither they nor files of ours include."""
    known = set(files)
    for path in files:
        if path.parts[0] in {"reference", "optimized"} and path.suffix in SUFFIXES:
            for name, header in missing(read(path), headers_of(path, known, read)):
                yield f"{path}: names std::{name}; expected #include <{header}>"
