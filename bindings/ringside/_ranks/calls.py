"""The calls of ranks whose arrays lie on a GPU: what is launched, and what comes back."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import TYPE_CHECKING, Any

from ringside._arrays import cuda as _cuda
from ringside._arrays.programs import baked
from ringside._attention.options import Options, to_core
from ringside._core import InvalidArgument
from ringside._ranks.auto import auto_of
from ringside._ranks.device import device_of
from ringside._ranks.source import RankSource, Side

if TYPE_CHECKING:
    from ringside._group.group import Group

Arrays = dict[str, list[Any]]  # by name: one of each hosted rank


class POISON:
    """For tests: workspaces of programs hold NaN before every call."""

    on = False


@dataclasses.dataclass
class ProgramAsked:
    """What a program of a plan's ranks is made for.

    Attributes:
        plan: a Plan or a DevicePlan.
        group: of as many ranks.
        device: its number here.
        dtypes: of q, k and v.
        head_dims: of q and of v.
        options: of the call.
        keep_kv: whether it keeps keys and values from forward to backward.
        poison: for tests: workspaces hold NaN.
    """

    plan: RankSource
    group: Group
    device: int
    dtypes: list[str]
    head_dims: list[int]
    options: Options
    keep_kv: bool = False
    poison: bool = False

    def key(self, fingerprint: str) -> str:
        """Alike in all processes: it also marks the messages of the program's calls."""
        made_for = [fingerprint, self.dtypes, self.head_dims, self.keep_kv, self.poison]
        return hashlib.sha256(repr([*made_for, baked(self.options)]).encode()).hexdigest()

    def made_for(self) -> dict[str, str]:
        """What decides, beside the plan, how the rows lie that it keeps."""
        return {
            "arrays": f"on device {self.device}",
            "dtypes": "/".join(self.dtypes),
            "head_dims": "/".join(map(str, self.head_dims)),
            "options": str(baked(self.options)),
            "lengths": f"number {self.plan._version}",
        }

    def require_device(self, exchange: str) -> None:
        """That of the calls before."""
        if exchange == "auto":
            auto_of(self.group, self.device)
        else:
            device_of(self.group, exchange, self.device)

    def program(self, exchange: str) -> tuple[Any, Any]:
        """It, made by all processes where it is new, and the links over which it exchanges."""
        fingerprint = self.plan._fingerprint_in(self.group)
        key = self.key(fingerprint)
        if exchange == "auto":
            words = fingerprint.rpartition(",")[0]
            exchange = auto_of(self.group, self.device).exchange(key, self._make, words)
        device = device_of(self.group, exchange, self.device)
        program = device.program(key, self._make, exchange)
        self.plan._take_up(self.group, program)
        return program, device.links

    def _make(self) -> Any:
        core, heads = _cuda.cuda_core(), self.plan.num_heads

        def nowhere(dtype: str, *shape: int) -> Any:
            return _cuda.Described(0, dtype, shape, (1,) * len(shape))

        q, v = (nowhere(self.dtypes[0], 0, 1, dim) for dim in self.head_dims)
        per_head = [
            None if x is None else nowhere("float32", heads)
            for x in (self.options.sink, self.options.alibi_slopes)
        ]
        options = core.CallOptions(
            to_core(self.options, self.plan._dropout_origin, per_head=()), *per_head
        )
        processes = [list(ranks) for ranks in self.group._processes]
        mine = self.group._processes.index(self.group.ranks)
        made_for = (self.plan._source, processes, mine, q, v, self.device, options)
        return core.RankProgram(*made_for, self.keep_kv, self.poison)


class RanksCall:
    """Arrays of one call, checked as far as Python does, and the options beside them.

    Args:
        plan: a Plan or a DevicePlan.
        group: of as many ranks.
        arrays: of torch or CuPy, on one device.
        options: of the call.
        keep_kv: whether keys and values are kept from forward to backward.
    """

    def __init__(
        self,
        plan: RankSource,
        group: Group,
        arrays: Arrays,
        options: Options,
        keep_kv: bool = False,
    ) -> None:
        _cuda.require_cuda("attention of arrays on a GPU", "arrays on the CPU, as by q_r.cpu()")
        self.plan, self.group, self.options = plan, group, options
        to_core(options, per_head=()).require_heads(plan.num_heads)
        q = arrays["q_r"][0]
        self.library = _cuda.library_of(q)
        self.device = self.library.device(q)
        for name, parts in arrays.items():
            for x in parts:
                if not self.library.owns(x) or self.library.device(x) != self.device:
                    raise TypeError(
                        f"{name} is not on the device of q_r or not its kind of array; convert it"
                    )
        strided = ("lse_r",)  # [heads, rows], which may be a view
        self.arrays = {
            name: parts if name in strided else [self.library.dense(x) for x in parts]
            for name, parts in arrays.items()
        }
        self._check_shapes()
        self.like = self.arrays["q_r"][0]
        self.sink = self._vector("sink")
        self.slopes = self._vector("alibi_slopes")
        dtypes = [name_of(self.arrays[name][0]) for name in ("q_r", "k_r", "v_r")]
        dims = [self.arrays[name][0].shape[-1] for name in ("q_r", "v_r")]
        self.asked = ProgramAsked(
            plan, group, self.device, dtypes, dims, options, keep_kv, POISON.on
        )

    def _check_shapes(self) -> None:
        """What does not fit the rank is refused here, before anybody is asked or anything runs."""
        dtype = name_of(self.arrays["q_r"][0])
        for name, parts in self.arrays.items():
            for rank, x in zip(self.group.ranks, parts, strict=True):
                if x.ndim != (2 if name == "lse_r" else 3):
                    expected = "[heads, rows]" if name == "lse_r" else "[rows, heads, dim]"
                    raise InvalidArgument(
                        f"{name} has shape {tuple(x.shape)}; expected {expected} of rank {rank}"
                    )
                self._check_rows(name, rank, x)
                own = "float32" if name == "lse_r" else dtype
                if name_of(x) != own:
                    raise TypeError(f"{name} has dtype {name_of(x)}; expected {own}. Convert it")
        self._check_heads()

    def _check_rows(self, name: str, rank: int, x: Any) -> None:
        side: Side = "k" if name in ("k_r", "v_r") else "q"
        rows = x.shape[1 if name == "lse_r" else 0]
        if rows != self.plan._num_rows_owned(rank, side):
            raise InvalidArgument(f"{name} has {rows} rows; {self.plan._words_of_rows(rank, side)}")

    def _check_heads(self) -> None:
        heads, kv_heads = self.plan.num_heads, self.plan.num_kv_heads
        dim, dim_v = (self.arrays[name][0].shape[-1] for name in ("q_r", "v_r"))
        expected = {
            "q_r": (heads, dim),
            "k_r": (kv_heads, dim),
            "v_r": (kv_heads, dim_v),
            "dout_r": (heads, dim_v),
            "out_r": (heads, dim_v),
            "lse_r": (heads,),
        }
        for name, parts in self.arrays.items():
            for x in parts:
                found = (x.shape[0],) if name == "lse_r" else tuple(x.shape[1:])
                if found != expected[name]:
                    raise InvalidArgument(
                        f"{name} has heads and dimension {found}; expected {expected[name]}"
                    )

    def _vector(self, name: str) -> Any:
        given, heads = getattr(self.options, name), self.plan.num_heads
        x = None if given is None else self.library.vector(given, self.like, heads)
        if x is not None and tuple(x.shape) != (heads,):
            raise InvalidArgument(
                f"{name} has shape {tuple(x.shape)}; expected [num_heads] = [{heads}], or a number"
            )
        return x

    def describe(self, x: Any) -> Any:
        """For the C++ half."""
        return None if x is None else self.library.describe(x)

    def core_options(self) -> Any:
        """Likewise."""
        core = to_core(self.options, self.plan._dropout_origin, per_head=())
        return _cuda.cuda_core().CallOptions(
            core, self.describe(self.sink), self.describe(self.slopes)
        )

    def _listed(self, *names: str) -> list[list[Any]]:
        return [list(x) for x in zip(*(self.arrays[name] for name in names), strict=True)]

    def forward(self, program: Any, links: Any, max_logit: Any) -> tuple[list[Any], ...]:
        """Enqueues it; (out, lse, kept) of each hosted rank."""
        outs, lses, kept, arrays = [], [], self._room_to_keep(program), []
        for (q, k, v), keys in zip(self._listed("q_r", "k_r", "v_r"), kept, strict=True):
            out = self.library.empty((*q.shape[:2], v.shape[-1]), self.like)
            lse = self.library.empty((q.shape[1], q.shape[0]), self.like, "float32")
            arrays.append([*map(self.describe, (q, k, v, out, lse)), self._kept(keys)])
            outs.append(out)
            lses.append(lse)
        program.forward(
            links,
            arrays,
            self.core_options(),
            self.describe(max_logit),
            self.library.stream(self.device),
        )
        return outs, lses, kept

    def _room_to_keep(self, program: Any) -> list[Any]:
        if not self.asked.keep_kv:
            return [None] * len(self.group.ranks)
        return [self.library.empty((n,), self.like, "uint8") for n in program.kept_bytes]

    def _kept(self, x: Any) -> Any:
        if x is None:
            return _cuda.Described(0, "uint8", (0,), (1,))
        return self.describe(x)

    def backward(
        self, program: Any, links: Any, deterministic: bool, kept: list[Any] | None
    ) -> tuple[list[Any], ...]:
        """Enqueues it; (dq, dk, dv), and dsink where there is one, of each hosted rank."""
        found, arrays = [], []
        listed = self._listed("dout_r", "q_r", "k_r", "v_r", "out_r", "lse_r")
        for given, keys in zip(listed, kept or [None] * len(listed), strict=True):
            gradients = [self.library.empty(x.shape, self.like) for x in given[1:4]]
            described = [*map(self.describe, (*given, *gradients)), self._kept(keys)]
            if self.sink is not None:
                size = (self.plan.num_heads,)
                gradients.append(self.library.empty(size, self.like, "float32"))
                described.append(self.describe(gradients[-1]))
            arrays.append(described)
            found.append(gradients)
        stream = self.library.stream(self.device)
        program.backward(links, arrays, self.core_options(), deterministic, stream)
        return tuple(list(parts) for parts in zip(*found, strict=True))

    def max_logit(self) -> Any:
        """Room for that of the hosted ranks."""
        return self.library.empty((self.plan.num_heads,), self.like, "float32")


def name_of(x: Any) -> str:
    """Of its dtype."""
    return _cuda.name_of(x.dtype)


def plain(options: Options) -> Options:
    """Options without arrays of a device, whose values nobody compares: that would wait for it."""
    on_device = {
        name: None
        for name in ("sink", "alibi_slopes")
        if _cuda.lies_on_device(getattr(options, name))
    }
    return dataclasses.replace(options, **on_device) if on_device else options
