# mypy: disable-error-code="assignment,override,overload-overlap"
from __future__ import annotations

import collections.abc
import typing

import numpy
import numpy.typing

class InvalidArgument(ValueError): ...
class Unsupported(RuntimeError): ...

class PlanError(RuntimeError):
    @property
    def key(self) -> int | None: ...
    @property
    def rank(self) -> int | None: ...
    @property
    def row(self) -> int | None: ...
    @property
    def step(self) -> int | None: ...
    @property
    def tile(self) -> int | None: ...

class PackedLayout:
    __hash__: typing.ClassVar[None] = None

    @staticmethod
    def from_flash(cu_seqlens: typing.Any, seqused: typing.Any = None) -> PackedLayout: ...
    @staticmethod
    def from_lengths(
        lengths: typing.Any, *, pad_to_multiple_of: typing.SupportsIndex = 1
    ) -> PackedLayout: ...
    @staticmethod
    def from_position_ids(position_ids: typing.Any) -> PackedLayout: ...
    @staticmethod
    def from_segment_ids(segment_ids: typing.Any) -> PackedLayout: ...
    @staticmethod
    def from_te(
        cu_seqlens: typing.Any,
        cu_seqlens_padded: typing.Any = None,
        *,
        num_rows: typing.SupportsIndex | None = None,
    ) -> PackedLayout: ...
    def __eq__(self, arg0: PackedLayout) -> bool: ...
    def __init__(self, cu_seqlens: typing.Any, cu_seqlens_padded: typing.Any = None) -> None: ...
    def __reduce__(self) -> tuple: ...
    def __repr__(self) -> str: ...
    def pack(
        self, arrays: collections.abc.Sequence, *, fill_value: typing.Any = 0
    ) -> typing.Any: ...
    def roll(
        self, x: typing.Any, shift: typing.SupportsIndex = -1, *, fill_value: typing.Any = 0
    ) -> typing.Any: ...
    def unpack(self, x: typing.Any) -> list: ...
    @property
    def cu_seqlens(self) -> numpy.typing.NDArray[numpy.int32]: ...
    @property
    def cu_seqlens_padded(self) -> numpy.typing.NDArray[numpy.int32]: ...
    @property
    def lengths(self) -> numpy.typing.NDArray[numpy.int32]: ...
    @property
    def num_rows(self) -> int: ...
    @property
    def num_sequences(self) -> int: ...
    @property
    def num_tokens(self) -> int: ...
    @property
    def padded_lengths(self) -> numpy.typing.NDArray[numpy.int32]: ...

class Mask:
    @staticmethod
    def causal(*, align: str = "top_left") -> Mask: ...
    @staticmethod
    def chunked(chunk_size: typing.SupportsIndex, *, align: str = "top_left") -> Mask: ...
    @staticmethod
    def full() -> Mask: ...
    @staticmethod
    def sliding_window(
        left: typing.SupportsIndex, right: typing.SupportsIndex, *, align: str = "top_left"
    ) -> Mask: ...
    def __eq__(self, arg0: Mask) -> bool: ...
    def __hash__(self) -> int: ...
    def __init__(
        self,
        window_size: tuple[typing.SupportsIndex, typing.SupportsIndex] = (-1, -1),
        chunk_size: typing.SupportsIndex = 0,
        align: str = "top_left",
    ) -> None: ...
    def __reduce__(self) -> tuple: ...
    def __repr__(self) -> str: ...
    def allows(
        self,
        q: typing.SupportsIndex,
        k: typing.SupportsIndex,
        len_q: typing.SupportsIndex,
        len_k: typing.SupportsIndex,
    ) -> bool: ...
    def to_dense(
        self, len_q: typing.SupportsIndex, len_k: typing.SupportsIndex
    ) -> numpy.typing.NDArray[numpy.bool]: ...
    def _visible(
        self,
        q: numpy.typing.NDArray[numpy.integer[typing.Any]] | list[int],
        len_q: typing.SupportsIndex | numpy.typing.NDArray[numpy.integer[typing.Any]] | list[int],
        len_k: typing.SupportsIndex | numpy.typing.NDArray[numpy.integer[typing.Any]] | list[int],
    ) -> tuple[numpy.typing.NDArray[numpy.int32], numpy.typing.NDArray[numpy.int32]]: ...
    @typing.overload
    def visible(
        self,
        q: numpy.typing.NDArray[numpy.integer[typing.Any]] | list[int],
        len_q: typing.SupportsIndex | numpy.typing.NDArray[numpy.integer[typing.Any]] | list[int],
        len_k: typing.SupportsIndex | numpy.typing.NDArray[numpy.integer[typing.Any]] | list[int],
    ) -> tuple[numpy.typing.NDArray[numpy.int32], numpy.typing.NDArray[numpy.int32]]: ...
    @typing.overload
    def visible(
        self, q: typing.SupportsIndex, len_q: typing.SupportsIndex, len_k: typing.SupportsIndex
    ) -> tuple[int, int]: ...
    @property
    def align(self) -> str: ...
    @property
    def chunk_size(self) -> int: ...
    @property
    def window_size(self) -> tuple[int, int]: ...

class Segment:
    __hash__: typing.ClassVar[None] = None

    def __eq__(self, arg0: Segment) -> bool: ...
    def __init__(
        self,
        seq: typing.SupportsIndex,
        pos: typing.SupportsIndex,
        len: typing.SupportsIndex,
        stride: typing.SupportsIndex = 1,
        row: typing.SupportsIndex = -1,
    ) -> None: ...
    def __reduce__(self) -> tuple: ...
    def __repr__(self) -> str: ...
    @property
    def len(self) -> int: ...
    @property
    def pos(self) -> int: ...
    @property
    def positions(self) -> numpy.typing.NDArray[numpy.int32]: ...
    @property
    def row(self) -> int: ...
    @property
    def seq(self) -> int: ...
    @property
    def stride(self) -> int: ...

class Tile:
    __hash__: typing.ClassVar[None] = None

    def __eq__(self, arg0: Tile) -> bool: ...
    def __repr__(self) -> str: ...
    @property
    def k(self) -> Segment: ...
    @property
    def q(self) -> Segment: ...

class Message:
    __hash__: typing.ClassVar[None] = None

    def __eq__(self, arg0: Message) -> bool: ...
    def __repr__(self) -> str: ...
    @property
    def heads(self) -> tuple[int, int]: ...
    @property
    def operand(self) -> str: ...
    @property
    def peer(self) -> int: ...
    @property
    def row(self) -> int: ...
    @property
    def rows(self) -> int: ...

class Step:
    def __repr__(self) -> str: ...
    @property
    def exchange(self) -> str: ...
    @property
    def heads(self) -> tuple[int, int]: ...
    @property
    def kv(self) -> list[Segment]: ...
    @property
    def kv_heads(self) -> tuple[int, int]: ...
    @property
    def owner(self) -> int | None: ...
    @property
    def owners(self) -> tuple[int, ...]: ...
    @property
    def q(self) -> list[Segment]: ...
    @property
    def receives(self) -> list[Message]: ...
    @property
    def sends(self) -> list[Message]: ...
    @property
    def tiles(self) -> list[Tile]: ...

class PlanProof:
    def __repr__(self) -> str: ...
    @property
    def messages(self) -> int: ...
    @property
    def operations(self) -> int: ...
    @property
    def pairs(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def tiles(self) -> int: ...

class OptionsArgument:
    def __init__(
        self,
        *,
        softmax_scale: typing.SupportsFloat | None = None,
        softcap: typing.SupportsFloat = 0.0,
        sink: typing.Any = None,
        alibi_slopes: typing.Any = None,
        dropout_p: typing.SupportsFloat = 0.0,
        dropout_seed: typing.SupportsIndex = 0,
        dropout_origin: tuple[typing.SupportsIndex, typing.SupportsIndex] = (0, 0),
    ) -> None: ...
    def require_heads(self, num_heads: typing.SupportsInt | typing.SupportsIndex) -> None: ...

class Plan:
    __hash__: typing.ClassVar[None] = None

    def __eq__(self, arg0: Plan) -> bool: ...
    @typing.overload
    def __init__(
        self,
        layout_q: PackedLayout,
        layout_k: PackedLayout | None = None,
        *,
        mask: Mask = ...,
        cp_size: typing.SupportsIndex | None = None,
        partition: typing.Any = "zigzag",
        partition_k: typing.Any = None,
        name: str | None = None,
        comm: str = "p2p",
        a2a_size: typing.SupportsIndex | None = None,
        stages: typing.SupportsIndex | None = None,
        num_heads: typing.SupportsIndex = 1,
        num_kv_heads: typing.SupportsIndex | None = None,
        max_tiles: typing.SupportsIndex = 50000000,
    ) -> None: ...
    @typing.overload
    def __init__(
        self,
        layout_q: PackedLayout,
        layout_k: PackedLayout,
        *,
        mask: Mask,
        num_heads: typing.SupportsIndex,
        num_kv_heads: typing.SupportsIndex,
        partition: str,
        comm: str,
        tables: dict,
        complete: bool = True,
    ) -> None: ...
    @typing.overload
    def __init__(
        self,
        whole: Plan,
        *,
        num_steps: typing.SupportsIndex,
        tiles: collections.abc.Set[
            tuple[
                typing.SupportsInt | typing.SupportsIndex,
                typing.SupportsInt | typing.SupportsIndex,
                typing.SupportsInt | typing.SupportsIndex,
            ]
        ]
        | None = None,
    ) -> None: ...
    def _attention(
        self, q: typing.Any, k: typing.Any, v: typing.Any, options: OptionsArgument, backend: str
    ) -> tuple: ...
    def _attention_backward(
        self,
        dout: typing.Any,
        q: typing.Any,
        k: typing.Any,
        v: typing.Any,
        out: typing.Any,
        lse: typing.Any,
        options: OptionsArgument,
        backend: str,
    ) -> tuple: ...
    def _cost(
        self,
        *,
        head_dim: typing.SupportsIndex = 128,
        head_dim_v: typing.SupportsIndex | None = None,
        bytes_per_element: typing.SupportsIndex = 2,
        block_size: tuple[typing.SupportsIndex, typing.SupportsIndex] = (128, 128),
        keep_kv: bool = False,
    ) -> PlanCost: ...
    def _exchange(
        self, step: typing.SupportsIndex, operand: str, buffers: collections.abc.Sequence
    ) -> list: ...
    def _exchange_transposed(
        self, step: typing.SupportsIndex, operand: str, buffers: collections.abc.Sequence
    ) -> list: ...
    def _position_ids(
        self, rank: typing.SupportsIndex, *, side: str = "q"
    ) -> numpy.typing.NDArray[numpy.int32]: ...
    def _row_indices(
        self, rank: typing.SupportsIndex, *, side: str = "q"
    ) -> numpy.typing.NDArray[numpy.int32]: ...
    def _shard(
        self, x: typing.Any, rank: typing.SupportsIndex, *, side: str = "q"
    ) -> typing.Any: ...
    def _unshard(self, parts: collections.abc.Sequence, *, side: str = "q") -> typing.Any: ...
    def schedule(
        self, rank: typing.SupportsIndex, *, backward: bool = False, keep_kv: bool = False
    ) -> list[Operation]: ...
    def shards_k(self, rank: typing.SupportsIndex) -> list[Segment]: ...
    def shards_q(self, rank: typing.SupportsIndex) -> list[Segment]: ...
    def steps(self, rank: typing.SupportsIndex) -> list[Step]: ...
    def tables(self) -> dict: ...
    def verify(self) -> PlanProof: ...
    @property
    def comm(self) -> str: ...
    @property
    def cp_size(self) -> int: ...
    @property
    def layout_k(self) -> PackedLayout: ...
    @property
    def layout_q(self) -> PackedLayout: ...
    @property
    def mask(self) -> Mask: ...
    @property
    def num_heads(self) -> int: ...
    @property
    def num_kv_heads(self) -> int: ...
    @property
    def num_steps(self) -> int: ...
    @property
    def partition(self) -> str: ...

class PlanCost:
    def __init__(self, counts: PlanCost) -> None: ...
    def __repr__(self) -> str: ...
    @property
    def backward_bytes_received(self) -> numpy.typing.NDArray[numpy.int64]: ...
    @property
    def backward_bytes_sent(self) -> numpy.typing.NDArray[numpy.int64]: ...
    @property
    def backward_gradient_bytes_received(self) -> numpy.typing.NDArray[numpy.int64]: ...
    @property
    def backward_gradient_bytes_sent(self) -> numpy.typing.NDArray[numpy.int64]: ...
    @property
    def backward_workspace_bytes(self) -> numpy.typing.NDArray[numpy.int64]: ...
    @property
    def block_size(self) -> tuple[int, int]: ...
    @property
    def blocks(self) -> numpy.typing.NDArray[numpy.int64]: ...
    @property
    def bytes_received(self) -> numpy.typing.NDArray[numpy.int64]: ...
    @property
    def bytes_sent(self) -> numpy.typing.NDArray[numpy.int64]: ...
    @property
    def fill(self) -> float: ...
    @property
    def fill_per_step(self) -> numpy.typing.NDArray[numpy.float64]: ...
    @property
    def imbalance(self) -> float: ...
    @property
    def kept_bytes(self) -> numpy.typing.NDArray[numpy.int64]: ...
    @property
    def messages(self) -> numpy.typing.NDArray[numpy.int64]: ...
    @property
    def pairs(self) -> numpy.typing.NDArray[numpy.int64]: ...
    @property
    def partial_blocks(self) -> numpy.typing.NDArray[numpy.int64]: ...
    @property
    def result_bytes_received(self) -> numpy.typing.NDArray[numpy.int64]: ...
    @property
    def result_bytes_sent(self) -> numpy.typing.NDArray[numpy.int64]: ...
    @property
    def rows_kv(self) -> numpy.typing.NDArray[numpy.int64]: ...
    @property
    def rows_needed(self) -> numpy.typing.NDArray[numpy.int64]: ...
    @property
    def rows_q(self) -> numpy.typing.NDArray[numpy.int64]: ...
    @property
    def tiles(self) -> numpy.typing.NDArray[numpy.int64]: ...
    @property
    def visits(self) -> numpy.typing.NDArray[numpy.int64]: ...
    @property
    def workspace_bytes(self) -> numpy.typing.NDArray[numpy.int64]: ...

class Operation:
    def __repr__(self) -> str: ...
    @property
    def after(self) -> list[int]: ...
    @property
    def buffers(self) -> list: ...
    @property
    def kind(self) -> str: ...
    @property
    def receives(self) -> list: ...
    @property
    def sends(self) -> list: ...
    @property
    def step(self) -> int: ...
    @property
    def stream(self) -> str: ...

class Aborted(RuntimeError): ...
class PeerError(RuntimeError): ...

class SocketRanks:
    def __init__(
        self,
        hosted: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        links: collections.abc.Sequence[
            tuple[
                typing.SupportsInt | typing.SupportsIndex,
                typing.SupportsInt | typing.SupportsIndex,
                typing.SupportsInt | typing.SupportsIndex,
            ]
        ],
        timeout_s: typing.SupportsFloat | typing.SupportsIndex,
    ) -> None: ...
    def abort(self, why: str) -> None: ...
    def start(
        self,
        call: typing.SupportsInt | typing.SupportsIndex,
        kind: typing.SupportsInt | typing.SupportsIndex,
    ) -> None: ...
    def waiting(self) -> list: ...
    @property
    def aborted(self) -> str | None: ...
    @property
    def lost(self) -> typing.Any: ...

class RankCall:
    def __init__(
        self,
        plan: Plan,
        hosted: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        arrays: collections.abc.Sequence[collections.abc.Sequence[typing.Any]],
        options: OptionsArgument,
        keep_kv: bool = False,
    ) -> None: ...
    def attention(self, ranks: SocketRanks) -> tuple: ...
    def attention_backward(
        self,
        ranks: SocketRanks,
        kept: collections.abc.Sequence[
            typing.Annotated[numpy.typing.ArrayLike, numpy.float64]
        ] = [],
    ) -> tuple: ...
    @property
    def head_dim_qk(self) -> int: ...
    @property
    def head_dim_v(self) -> int: ...
    @property
    def moments(self) -> list: ...

def attention(
    q: typing.Any,
    k: typing.Any,
    v: typing.Any,
    layout_q: PackedLayout,
    layout_k: PackedLayout | None,
    mask: Mask,
    options: OptionsArgument,
) -> tuple: ...
def attention_backward(
    dout: typing.Any,
    q: typing.Any,
    k: typing.Any,
    v: typing.Any,
    out: typing.Any,
    lse: typing.Any,
    layout_q: PackedLayout,
    layout_k: PackedLayout | None,
    mask: Mask,
    options: OptionsArgument,
) -> tuple: ...
def check_cp_size(cp_size: typing.SupportsIndex) -> None: ...
def cpu_level() -> str: ...
def cpu_levels() -> list[str]: ...
def estimate(
    layout_q: PackedLayout,
    layout_k: PackedLayout | None = None,
    *,
    mask: Mask = ...,
    cp_size: typing.SupportsIndex | None = None,
    partition: typing.Any = "zigzag",
    partition_k: typing.Any = None,
    comm: str = "p2p",
    a2a_size: typing.SupportsIndex | None = None,
    stages: typing.SupportsIndex | None = None,
    num_heads: typing.SupportsIndex = 1,
    num_kv_heads: typing.SupportsIndex | None = None,
    head_dim: typing.SupportsIndex = 128,
    head_dim_v: typing.SupportsIndex | None = None,
    bytes_per_element: typing.SupportsIndex = 2,
    block_size: tuple[typing.SupportsIndex, typing.SupportsIndex] = (128, 128),
    of_ranks: bool = False,
) -> PlanCost: ...
def partition(
    name: str, layout: PackedLayout, cp_size: typing.SupportsIndex, mask: Mask
) -> list[list[Segment]]: ...

COMMS: tuple = ("p2p", "all_gather", "a2a", "a2a+p2p", "fetch")
COMM_TABLE: dict = {
    "p2p": {"summary": "K/V travel round a ring", "moves_whole_buffers": True},
    "all_gather": {"summary": "every rank receives all K/V at once", "moves_whole_buffers": True},
    "a2a": {"summary": "ranks trade rows for heads", "moves_whole_buffers": True},
    "a2a+p2p": {
        "summary": "a2a inside groups of a2a_size, a ring between them",
        "moves_whole_buffers": True,
    },
    "fetch": {
        "summary": "own tiles first, then the K/V rows that a rank's tiles see, from their owners",
        "moves_whole_buffers": False,
    },
}
PARTITIONS: tuple = (
    "contiguous",
    "zigzag",
    "striped",
    "whole_pack",
    "whole_pack_zigzag",
    "balanced",
)
PARTITION_TABLE: dict = {
    "contiguous": {
        "summary": "each sequence in cp_size runs",
        "balances_causal": False,
        "of_stream": False,
        "closed_form": True,
    },
    "zigzag": {
        "summary": "each sequence in 2*cp_size chunks, rank r owns r and 2*cp_size-1-r",
        "balances_causal": True,
        "of_stream": False,
        "closed_form": True,
    },
    "striped": {
        "summary": "each sequence dealt token by token",
        "balances_causal": True,
        "of_stream": False,
        "closed_form": True,
    },
    "whole_pack": {
        "summary": "the packed stream in cp_size runs",
        "balances_causal": False,
        "of_stream": True,
        "closed_form": True,
    },
    "whole_pack_zigzag": {
        "summary": "the packed stream in 2*cp_size chunks, mirrored",
        "balances_causal": True,
        "of_stream": True,
        "closed_form": True,
    },
    "balanced": {
        "summary": "short sequences whole, long ones in pieces: equal rows, equal work in kernels' blocks",
        "balances_causal": True,
        "of_stream": False,
        "closed_form": False,
    },
}
TABLE_COLUMNS: dict = {
    "shards": ["shard", "seq", "pos", "stride", "row", "len"],
    "tiles": [
        "tile_list",
        "seq",
        "q_pos",
        "q_stride",
        "q_row",
        "q_len",
        "k_pos",
        "k_stride",
        "k_row",
        "k_len",
    ],
    "homes": ["rank", "q_shard", "kv_shard"],
    "steps": [
        "rank",
        "step",
        "kind",
        "q_shard",
        "q_head_begin",
        "q_head_end",
        "kv_shard",
        "kv_head_begin",
        "kv_head_end",
        "tile_list",
    ],
    "messages": [
        "rank",
        "step",
        "direction",
        "peer",
        "operand",
        "row",
        "rows",
        "head_begin",
        "head_end",
    ],
}
__cpu__: str = "dispatch"
__version__: str = "0.1.0"
