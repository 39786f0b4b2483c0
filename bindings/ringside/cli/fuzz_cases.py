"""What `ringside fuzz` draws: documents across block borders, kernels' head sizes, every option."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Sequence
from typing import Any

from ringside import _core
from ringside._extras import extra
from ringside.testing import Case

with extra("testing", "ringside fuzz"):
    from hypothesis import strategies as st
    from hypothesis.strategies import DrawFn, SearchStrategy

    from ringside.testing import strategies

HEAD_DIMS = (1, 2, 3, 5, 8, 32, 64, 80, 96, 128, 192, 256)
MASKS = ("full", "causal", "window", "chunked")
OPTIONS = ("softcap", "sink", "alibi_slopes", "dropout")
BORDERS = [n for block in (64, 128, 256) for n in (block - 1, block, block + 1, block + 2)]
"""Kernels go through keys and queries in blocks of these sizes."""
SHORT, MANY = 48, 5
BOOLEANS = st.booleans()


@dataclasses.dataclass(frozen=True)
class Space:
    """Which cases are drawn.

    >>> Space(options=("sink",)).options
    ('sink',)

    Args:
        max_documents, max_tokens: of a pack.
        head_dims: of q and k, and of v; half of all cases have the same for both.
        masks: kinds, of MASKS; all of them are also combined with each other.
        cp_sizes: numbers of ranks.
        options: of OPTIONS; None for those that the implementation takes.
    """

    max_documents: int = 8
    max_tokens: int = 512
    head_dims: tuple[int, ...] = HEAD_DIMS
    masks: tuple[str, ...] = MASKS
    cp_sizes: tuple[int, ...] = tuple(range(1, 9))
    options: tuple[str, ...] | None = None


def numbers_from(text: str, name: str) -> tuple[int, ...]:
    """Positive integers, separated by commas.

    >>> numbers_from("64,128", "head-dims")
    (64, 128)
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and int(part) > 0 for part in parts):
        raise ValueError(f'{name}="{text}"; expected positive integers, such as 64,128')
    return tuple(int(part) for part in parts)


def names_from(text: str, name: str, known: Sequence[str]) -> tuple[str, ...]:
    """Names of a list, separated by commas.

    >>> names_from("causal", "masks", MASKS)
    ('causal',)
    """
    parts = tuple(part.strip() for part in text.split(","))
    if unknown := [part for part in parts if part not in known]:
        raise ValueError(f'{name}="{text}" has "{unknown[0]}"; expected some of {", ".join(known)}')
    return parts


def options_of(*functions: Callable[..., Any] | None) -> tuple[str, ...]:
    """The options that all of these functions take, by their signatures.

    >>> import ringside as rs
    >>> options_of(rs.attention, None)
    ('softcap', 'sink', 'alibi_slopes', 'dropout')
    >>> options_of(lambda q, k, v, *, mask, sink=None: None)
    ('sink',)
    """
    taken = [_keywords(fn) for fn in functions if fn is not None]
    needed = {"dropout": ("dropout_p", "dropout_seed")}
    return tuple(
        name
        for name in OPTIONS
        if all(all(each in names for each in needed.get(name, (name,))) for names in taken)
    )


class _Everything:
    def __contains__(self, name: object) -> bool:
        return True


def _keywords(fn: Callable[..., Any]) -> Any:
    """Names of keywords; functions that take any (**kw) and builtins take all."""
    fn = getattr(fn, "signature_of", fn)
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return _Everything()
    names = {p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)}
    for p in parameters:
        if p.kind is p.VAR_KEYWORD:
            typed = _typed(fn, p.name)
            return _Everything() if typed is None else names | typed
    return names


def _typed(fn: Callable[..., Any], name: str) -> set[str] | None:
    """The names of **kw: Unpack[a TypedDict]; None for any other **kw."""
    try:
        hint = typing.get_type_hints(fn).get(name)
    except Exception:  # whatever evaluating annotations raises
        return None
    packed = (*getattr(hint, "__args__", ()), hint)[0]
    names: dict[str, Any] | None = getattr(packed, "__annotations__", None)
    return set(names) if names is not None and hasattr(packed, "__total__") else None


def short_lengths(space: Space) -> SearchStrategy[list[int]]:
    """Few short documents, or many."""
    most = space.max_documents
    few = strategies.lengths(max_sequences=min(4, most), max_length=min(SHORT, space.max_tokens))
    many = st.lists(st.integers(0, 8), min_size=min(MANY, most), max_size=most)
    return st.one_of(_within(few, space.max_tokens), _within(many, space.max_tokens))


def long_lengths(space: Space) -> SearchStrategy[list[int]]:
    """One or two documents around the borders of blocks."""
    longest = space.max_tokens
    border = st.sampled_from([n for n in BORDERS if n <= longest] or [longest])
    each = st.one_of(st.integers(0, min(longest, 2 * max(BORDERS))), border)
    return _within(st.lists(each, min_size=1, max_size=min(2, space.max_documents)), longest)


@st.composite
def _within(draw: DrawFn, lengths: SearchStrategy[list[int]], tokens: int) -> list[int]:
    """Later documents get what the earlier ones leave."""
    left, kept = tokens, []
    for length in draw(lengths):
        kept.append(min(length, left))
        left -= kept[-1]
    return kept


def masks(kinds: tuple[str, ...]) -> SearchStrategy[_core.Mask]:
    """Of these kinds."""
    if set(kinds) == set(MASKS):
        return strategies.masks()
    aligns = st.sampled_from(["top_left", "bottom_right"])
    bounds = st.one_of(st.integers(0, 3), st.integers(0, 130))
    of_kind = {
        "full": st.just(_core.Mask.full()),
        "causal": st.builds(lambda align: _core.Mask.causal(align=align), aligns),
        "window": st.builds(
            lambda size, align: _core.Mask(window_size=size, align=align),
            st.tuples(bounds, bounds),
            aligns,
        ),
        "chunked": st.builds(_core.Mask.chunked, st.integers(1, 130)),
    }
    return st.one_of([of_kind[kind] for kind in kinds])


def options(taken: tuple[str, ...]) -> Callable[[int], SearchStrategy[dict[str, Any]]]:
    """Keywords of Case: none in half of all cases."""

    @functools.cache
    def of_heads(num_heads: int) -> SearchStrategy[dict[str, Any]]:
        some = strategies.options(num_heads).map(
            lambda given: {name: x for name, x in given.items() if _option(name) in taken}
        )
        return st.one_of(st.just({}), some) if taken else st.just({})

    return of_heads


def _option(keyword: str) -> str:
    """dropout_p and dropout_seed belong together."""
    return "dropout" if keyword.startswith("dropout") else keyword


def cases(space: Space, dtype: str, taken: tuple[str, ...], parallel: bool) -> SearchStrategy[Case]:
    """Whole cases, half of them of short documents; long ones come with few heads."""
    alone: dict[str, Any] = {"partitions": st.just("zigzag"), "comms": st.just("p2p")}
    given: dict[str, Any] = {
        "masks": masks(space.masks),
        "cp_sizes": st.sampled_from(space.cp_sizes) if parallel else st.just(1),
        "head_dims": st.sampled_from(space.head_dims),
        "dtypes": st.just(dtype),
        "options": options(taken),
        **({} if parallel else alone),
    }
    of_few_heads = st.sampled_from([(1, 1), (2, 1), (2, 2)])
    short, long = (strategies.layouts(lengths=of(space)) for of in (short_lengths, long_lengths))
    either = st.one_of(
        strategies.cases(layouts_q=short, heads=strategies.heads(), **given),
        strategies.cases(layouts_q=long, heads=of_few_heads, **given),
    )
    return _often_of_one_head_dim(either)


@st.composite
def _often_of_one_head_dim(draw: DrawFn, cases: SearchStrategy[Case]) -> Case:
    case = draw(cases)
    if case.head_dim_v == case.head_dim or draw(BOOLEANS):
        return case
    return case.replace(head_dim_v=case.head_dim)
