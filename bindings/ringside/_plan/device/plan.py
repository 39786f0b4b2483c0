"""Plans whose lengths stay on the device, for steps that neither synchronize nor know lengths."""

from __future__ import annotations

import hashlib
import weakref
from typing import Any

from ringside import _core
from ringside._arguments.keywords import knows_keywords
from ringside._arrays import cuda as _cuda
from ringside._arrays.device_lengths import DeviceLengths, layouts_of
from ringside._core import arguments
from ringside._group.group import Group
from ringside._plan.device import calls as _calls
from ringside._plan.device import rank_calls as _rank_calls
from ringside._plan.names import Comm, PartitionName
from ringside._plan.numbers import number
from ringside._plan.own_methods import own_methods

_MOST = 2**31 - 1  # of int32


def _or(default: int, given: int | None, name: str) -> int:
    return default if given is None else arguments.int32(given, name)


class DevicePlan:
    """A plan for any lengths within a capacity; they are read on the GPU, where they are.

    set_lengths() rebuilds who owns what and the kernels' work lists from cu_seqlens in one launch:
    no copy to the host, no synchronization, no allocation. So one plan serves all layers of a step,
    and a CUDA graph that captured set_lengths, attention and attention_backward can be replayed
    with other lengths written into the same arrays.

    Args:
        max_sequences: most sequences of a batch; up to 65,536 are tested.
        num_rows_q: rows of q, out and dq; rows behind the last sequence belong to nobody.
        num_rows_k: rows of k and v; default num_rows_q.
        pad_to_multiple_of: promises that padded lengths are multiples of this. 2*cp_size (what
            Transformer Engine asks for) keeps the ranks' buffers as small as they can be.
        max_seqlen: promises that no sequence has more tokens, of queries or of keys. Kernels of
            one rank then know what packs of short documents allow: dq of up to 384 keys needs no
            sums, and of more, if such documents are many, no zeros to begin with.
        mask, cp_size, partition, comm, a2a_size, num_heads, num_kv_heads: as for ringside.plan;
            a partition is one of ringside.PARTITIONS but "balanced", and comm is one of
            ringside.COMMS but "fetch": what these own and move follows from all lengths at once.

    Raises:
        ValueError: arguments that do not fit.
        Unsupported: no CUDA in this build, or no device; partition="balanced", comm="fetch".

    Lengths on the device cannot be checked without waiting for it. Those that do not fit (falling,
    more rows than there are, not a multiple, more tokens than max_seqlen) count as an empty batch:
    results are zeros, lse -inf, and check() raises.

    Rows that a rank gathers of others lie in the order of their sequences, as in a plan that knows
    the lengths: a kernel's block goes on from chunk to chunk of a document. Only stripes of some of
    the ranks (partition="striped", comm="a2a+p2p") lie rank by rank inside each document.

    >>> import ringside as rs, torch
    >>> plan = rs.DevicePlan(max_sequences=4, num_rows_q=8, cp_size=2)
    >>> plan.set_lengths(torch.tensor([0, 3, 8], dtype=torch.int32, device="cuda"))
    >>> q = k = v = torch.ones(8, 1, 16, device="cuda")
    >>> out, lse = plan.attention(q, k, v)
    >>> out[:, 0, 0].tolist()
    [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    """

    @knows_keywords
    def __init__(
        self,
        *,
        max_sequences: int,
        num_rows_q: int,
        num_rows_k: int | None = None,
        mask: _core.Mask | None = None,
        cp_size: int = 1,
        partition: PartitionName = "zigzag",
        comm: Comm = "p2p",
        a2a_size: int | None = None,
        num_heads: int = 1,
        num_kv_heads: int | None = None,
        pad_to_multiple_of: int = 1,
        max_seqlen: int | None = None,
    ) -> None:
        self.max_sequences = arguments.int32(max_sequences, "max_sequences")
        self.num_rows_q = arguments.int32(num_rows_q, "num_rows_q")
        self.num_rows_k = _or(self.num_rows_q, num_rows_k, "num_rows_k")
        self.mask = _core.Mask.causal() if mask is None else arguments.mask(mask, "mask")
        self.cp_size = arguments.int32(cp_size, "cp_size")
        self.partition = arguments.text(partition, "partition")
        self.comm = arguments.text(comm, "comm")
        self.num_heads = arguments.int32(num_heads, "num_heads")
        self.num_kv_heads = _or(self.num_heads, num_kv_heads, "num_kv_heads")
        capacity = {
            "partition": self.partition,
            "comm": self.comm,
            "a2a_size": _or(0, a2a_size, "a2a_size"),
            "mask": self.mask,
            "cp_size": self.cp_size,
            "num_heads": self.num_heads,
            "num_kv_heads": self.num_kv_heads,
            "max_sequences": self.max_sequences,
            "max_rows_q": self.num_rows_q,
            "max_rows_k": self.num_rows_k,
            "pad_to_multiple_of": arguments.int32(pad_to_multiple_of, "pad_to_multiple_of"),
            "max_seqlen": _or(_MOST, max_seqlen, "max_seqlen"),
        }
        _cuda.require_cuda(
            "a DevicePlan, whose lengths lie on a GPU,",
            "ringside.plan(layout, ...), whose lengths lie on the host",
        )
        self._source = _cuda.cuda_core().Capacity(**capacity)
        self._digest = hashlib.sha256(repr(capacity).encode()).hexdigest()[:16]
        self._programs: dict[Any, Any] = {}
        self._rank_programs: weakref.WeakSet[Any] = weakref.WeakSet()  # groups keep them
        self._numbers: weakref.WeakKeyDictionary[Group, int] = weakref.WeakKeyDictionary()
        self._lengths: DeviceLengths | None = None
        self._version, self._dropout_origin, self._number = 0, (0, 0), number(self)

    def set_lengths(
        self,
        cu_seqlens: Any,
        cu_seqlens_padded: Any = None,
        cu_seqlens_k: Any = None,
        cu_seqlens_k_padded: Any = None,
    ) -> None:
        """Takes over the lengths that these arrays hold now, on the current stream.

        Args:
            cu_seqlens: [batch+1] int32 or int64 on the GPU, valid tokens, starts at 0; or a
                ringside.thd.DeviceLayout of num_rows_q rows, which has cu_seqlens_padded, too.
            cu_seqlens_padded: [batch+1] likewise, where each sequence's rows start; default
                cu_seqlens.
            cu_seqlens_k, cu_seqlens_k_padded: of k and v, of num_rows_k rows; default those of q.

        A backward pass wants the lengths of its forward pass: do not set others between them (keep
        a plan for each batch in flight). ringside.torch.varlen_attention refuses. Over a group
        every process sets the same lengths, which are of the whole batch.

        Raises:
            ValueError: shapes that do not fit.
            TypeError: arrays that are not int32 or int64, or not on the device.

        >>> import ringside as rs, torch
        >>> plan = rs.DevicePlan(max_sequences=4, num_rows_q=8)
        >>> cu_seqlens = torch.tensor([0, 3, 8], dtype=torch.int32, device="cuda")
        >>> plan.set_lengths(cu_seqlens)
        """
        q, k = layouts_of(
            (cu_seqlens, cu_seqlens_padded, self.num_rows_q),
            (cu_seqlens_k, cu_seqlens_k_padded, self.num_rows_k),
        )
        lengths = DeviceLengths(self.max_sequences, q, k)
        if self._lengths is not None and self._programs:
            lengths.require_with(self._lengths.library, self._lengths.device)
        for program in self._rank_programs:
            lengths.require_on(program.device)
        self._lengths = lengths
        self._version += 1
        for program in self._all_programs():
            self._lengths.set(program)

    def _all_programs(self) -> list[Any]:
        return [*self._programs.values(), *self._rank_programs]

    def check(self) -> None:
        """Waits for the device and raises ValueError if lengths did not fit since the last check.

        Of calls over a group also if they were not those of all other processes.

        Raises:
            ValueError: what would have fitted.

        >>> import ringside as rs, torch
        >>> plan = rs.DevicePlan(max_sequences=4, num_rows_q=8)
        >>> plan.set_lengths(torch.tensor([0, 3, 9], dtype=torch.int32, device="cuda"))
        >>> x = torch.ones(8, 1, 16, device="cuda")
        >>> plan.attention(x, x, x)[0].abs().max().item()
        0.0
        >>> try:
        ...     plan.check()
        ... except ValueError as error:
        ...     print(str(error)[:33])
        lengths on the device did not fit
        """
        fitted = [self._lengths.fitted(p) for p in self._all_programs() if self._lengths]
        if not all(fitted):
            raise ValueError(
                "lengths on the device did not fit; expected cu_seqlens that start at 0, never "
                f"fall, give no sequence more tokens than rows, and end within {self.num_rows_q} "
                f"rows of q and {self.num_rows_k} of k, each padded to pad_to_multiple_of, of no "
                "more than max_seqlen tokens, and over a group the same in every process"
            )

    attention = _calls.attention
    attention_backward = _calls.attention_backward
    rank_rows = _rank_calls.rank_rows
    prepare = _rank_calls.prepare
    attention_rank = _rank_calls.attention_rank
    attention_backward_rank = _rank_calls.attention_backward_rank

    def _prepare(self, program: Any, library: Any, device: int) -> None:
        """A program made after set_lengths() gets them, too."""
        self._lengths_with(library, device).set(program)

    def _lengths_with(self, library: Any, device: int) -> DeviceLengths:
        if self._lengths is None:
            raise ValueError("no lengths yet; expected those of a batch. Call set_lengths first")
        self._lengths.require_with(library, device)
        return self._lengths

    # --- for calls of ranks, see ringside/_ranks/source.py

    def _require_ready(self, library: Any, device: int) -> None:
        self._lengths_with(library, device)

    _take_up = _rank_calls.take_up
    _fingerprint_in = _rank_calls.fingerprint_in
    _num_rows_owned = _rank_calls.num_rows_owned
    _words_of_rows = _rank_calls.words_of_rows

    def __repr__(self) -> str:
        """A summary."""
        return (
            f"<DevicePlan {self.partition} over {self.comm}, cp_size={self.cp_size}, up to "
            f"{self.max_sequences} sequences in {self.num_rows_q} rows, {self.mask}>"
        )


own_methods(DevicePlan)
