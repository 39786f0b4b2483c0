"""The options of attention: written once as a class and once as keywords.

Every call takes either: `options=Options(...)`, or the same names as keywords of its own. What C++
makes of them, and why there is more than one struct, says bindings/core/options.h.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import numpy as np
import numpy.typing as npt

from ringside import _core
from ringside._arguments.gradients import PER_HEAD, refuse_constants
from ringside._arguments.keywords import unexpected_keyword
from ringside._arguments.kinds import imported
from ringside._core import Unsupported

if TYPE_CHECKING:
    from typing_extensions import Unpack
else:
    try:
        from typing import Unpack
    except ImportError:  # Python 3.10

        class Unpack:
            """What whoever asks for type hints at run time gets: the TypedDict itself."""

            def __class_getitem__(cls, keywords: type) -> type:
                """The keywords, packed."""
                return keywords


Origin = tuple[int, int]
Call = TypeVar("Call", bound=Callable[..., Any])


class ScoreKeywords(TypedDict, total=False):
    """Of OptionKeywords those that flash_attn_varlen_func has no places of its own for."""

    sink: npt.ArrayLike | None
    alibi_slopes: npt.ArrayLike | None
    bias: None
    dropout_p: float
    dropout_seed: int


class OptionKeywords(ScoreKeywords, total=False):
    """The keywords of every call, for type checkers: the fields of Options."""

    softmax_scale: float | None
    softcap: float


@dataclass(frozen=True, kw_only=True)
class Options:
    """What attention does besides q.k, softmax and v: the same for every call of a layer.

    Any call that takes these keywords takes them as `options=`, too, and further keywords beside
    it, for what it leaves at the default.

    Args:
        softmax_scale: multiplies q.k; default 1/sqrt(head_dim_qk).
        softcap: > 0 turns a scaled score s into softcap * tanh(s / softcap) (Gemma 2).
        sink: a logit, or [num_heads] of them, that joins every row's softmax once, without a value:
            0.0 is "off by one" softmax, learnable ones are gpt-oss's. The lse returned includes it.
        alibi_slopes: a slope, or [num_heads] of them; scores get -slope * |p - key position|, p the
            aligned position of the query (Press et al., arXiv:2108.12409).
        bias: not supported; anything but None raises Unsupported.
        dropout_p: probability that a weight is dropped; the others are divided by 1-p. Which ones
            depends on dropout_seed and the pair's global (sequence, head, query, key) alone, so
            that every partitioning drops the same: word key % 4, w, of Philox4x32-10, counter
            (sequence, head, query, key // 4), key the seed's low and high half, stays if
            (w + 0.5) / 2**32 >= dropout_p.
        dropout_seed: 0 to 2**64-1.

    sink and alibi_slopes may be arrays of any library; [num_heads] is checked by the call, which
    knows how many there are. dataclasses.replace makes changed copies.

    Raises:
        ValueError: numbers beyond what is said above.
        TypeError: anything that is no number, unknown keywords.
        Unsupported: an additive bias.

    >>> import numpy as np, ringside as rs
    >>> q = k = np.ones((2, 1, 2)); v = np.array([[[1.0]], [[3.0]]])
    >>> layer = rs.Options(softcap=30.0, sink=0.0)
    >>> layout = rs.PackedLayout([0, 2])
    >>> out, lse = rs.attention(q, k, v, layout, options=layer)
    >>> bool((out == rs.attention(q, k, v, layout, softcap=30.0, sink=0.0)[0]).all())
    True
    """

    softmax_scale: float | None = None
    softcap: float = 0.0
    sink: npt.ArrayLike | None = None
    alibi_slopes: npt.ArrayLike | None = None
    bias: None = None
    dropout_p: float = 0.0
    dropout_seed: int = 0

    def __post_init__(self) -> None:
        """Refuses what no call could take."""
        if self.bias is not None:
            raise Unsupported(
                "bias adds a number of its own to every (query, key) pair, which no plan carries. "
                "Nearest supported: alibi_slopes, a per-head bias that depends on the distance"
            )
        refuse_constants(vars(self), tensors=PER_HEAD)
        to_core(self, per_head=[name for name in PER_HEAD if _is_on_host(getattr(self, name))])


DEFAULTS = {field.name: field.default for field in fields(Options)}


def to_core(
    options: Options, origin: Origin = (0, 0), *, per_head: list[str] | tuple[str, ...] = PER_HEAD
) -> _core.OptionsArgument:
    """For the C++ half, which checks the numbers.

    Args:
        options: what a user said.
        origin: of a piece of a longer pack: the sequence of the whole that its first one is, and at
            which query of that one it begins. Dropout drops by place in the whole.
        per_head: which arrays go along; those on a device cannot.
    """
    given = {name: getattr(options, name) for name in DEFAULTS if name not in ("bias", *PER_HEAD)}
    given |= {name: imported(getattr(options, name)) for name in per_head}
    return _core.OptionsArgument(**given, dropout_origin=origin)


def _is_on_host(x: object) -> bool:
    """Whether NumPy can read x without asking another library."""
    if isinstance(x, np.ndarray | np.generic):
        return True
    return not (hasattr(x, "__dlpack__") or hasattr(x, "__cuda_array_interface__"))


NO_OPTIONS = Options()


def options_of(
    call: Callable[..., Any], options: Options | None, keywords: Mapping[str, Any]
) -> Options:
    """The options of a call, however they were spelled.

    Args:
        call: the public function, for what a refusal says.
        options: what it got by this name.
        keywords: those that its signature does not name.

    >>> options_of(options_of, Options(softcap=2.0), {"sink": 0.0}).sink
    0.0
    """
    if options is not None and not isinstance(options, Options):
        raise TypeError(
            f"options is a {type(options).__name__}; expected a ringside.Options, or None. Pass "
            "ringside.Options(...), or its fields as keywords"
        )
    if not keywords:
        return NO_OPTIONS if options is None else options
    if unknown := [name for name in keywords if name not in DEFAULTS]:
        raise unexpected_keyword(call, unknown[0])
    if options is None:
        return Options(**keywords)
    for name in keywords:
        if is_set(name, getattr(options, name)):
            raise TypeError(
                f"{call.__qualname__}() got {name} and options that set {name}, too; expected one "
                f"of them. Leave {name} out, or pass dataclasses.replace(options, {name}=...)"
            )
    return replace(options, **keywords)


def is_set(name: str, value: object) -> bool:
    """Whether an option has another value than its default; arrays do, whatever they hold.

    >>> is_set("softcap", 0.0), is_set("softmax_scale", 0.0)
    (False, True)
    """
    default = DEFAULTS[name]
    return value is not default and not (type(value) is type(default) and value == default)


def takes_options(call: Call) -> Call:
    """Lets help() and inspect.signature show the keywords that **keywords stands for.

    >>> @takes_options
    ... def call(x, *, options=None, **keywords: Unpack[OptionKeywords]): ...
    >>> list(inspect.signature(call).parameters)[:4]
    ['x', 'options', 'softmax_scale', 'softcap']
    """
    signature = inspect.signature(call)
    named = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    hidden = [field for field in fields(Options) if field.name not in signature.parameters]
    options = [
        inspect.Parameter(
            x.name, inspect.Parameter.KEYWORD_ONLY, default=x.default, annotation=x.type
        )
        for x in hidden
    ]
    vars(call)["__signature__"] = signature.replace(parameters=[*named, *options])
    return call
