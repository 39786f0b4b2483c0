"""Every partition, transport and mask over as many GPUs as there are, to the bit as on one.

A process a GPU, up to four, with one rank and with two ranks each; two processes where there is
one GPU. Each process computes the whole on its own GPU and compares its ranks' rows there.
"""

import itertools

import numpy as np
import pytest
import ringside as rs
from cuda_cases import REASON
from group_processes import started
from ringside.testing import Case

pytestmark = pytest.mark.skipif(bool(REASON), reason=f"no GPU test: {REASON}")

MASKS = {
    "full": rs.Mask.full(),
    "causal": rs.Mask.causal(),
    "causal, bottom right": rs.Mask.causal(align="bottom_right"),
    "window": rs.Mask.sliding_window(30, 5),
    "chunks": rs.Mask.chunked(48),
}
# Documents that no number of ranks divides, one empty, with padding; longer than a tile, and short.
PACK = rs.PackedLayout([0, 301, 301, 304, 517, 530], [0, 304, 304, 320, 540, 560])
WRITTEN_FOR_THESE = {"num_heads": 8, "num_kv_heads": 8, "head_dim": 72, "head_dim_v": 64}


def devices():
    import torch

    return torch.cuda.device_count()


def processes():
    return max(2, min(4, devices()))


class Pool:
    """A process a GPU, with a group of one rank each and one of two."""

    def __init__(self, workers):
        self.workers = workers
        workers.all("from group_cuda import difference; import torch; torch.cuda.init()")
        for each in (1, 2):
            hosted = [[*range(each * i, each * (i + 1))] for i in range(len(workers))]
            workers.make_group(hosted, f"group_{each}", timeout_s=40)

    def differences(self, case, dtype, exchange, each, replayed=False):
        """What each process found wrong."""
        places = [{"device": i % devices()} for i in range(len(self.workers))]
        call = f"answer = difference(case, group_{each}, dtype, exchange, device, replayed)"
        more = {"exchange": exchange, "replayed": replayed}
        found = self.workers.all(call, places, case=case, dtype=dtype, **more)
        return [x for x in found if x]


@pytest.fixture(scope="module")
def pool():
    with started(processes()) as workers:
        yield Pool(workers)


EXCHANGES = pytest.mark.parametrize("exchange", ["peer", "nccl"])
EACH = pytest.mark.parametrize("each", [1, 2], ids=["a rank a process", "two ranks a process"])


def require(exchange):
    if exchange == "nccl" and devices() < 2:
        pytest.skip("NCCL refuses two processes on one GPU, and there is one")


def a2a_size(comm, size):
    return (2 if size % 2 == 0 else size) if comm == "a2a+p2p" else None


@EXCHANGES
@EACH
@pytest.mark.parametrize("comm", rs.COMMS)
@pytest.mark.parametrize("partition", rs.PARTITIONS)
def test_every_partition_transport_and_mask(pool, partition, comm, each, exchange):
    require(exchange)
    size = each * processes()
    dtypes = itertools.cycle(["bfloat16", "float32"])
    for (name, mask), dtype in zip(MASKS.items(), dtypes, strict=False):
        case = Case(
            PACK,
            cp_size=size,
            partition=partition,
            comm=comm,
            a2a_size=a2a_size(comm, size),
            mask=mask,
            **WRITTEN_FOR_THESE,
        )
        assert not pool.differences(case, dtype, exchange, each), (name, dtype)


@EXCHANGES
@EACH
@pytest.mark.parametrize("comm", rs.COMMS)
def test_both_passes_are_captured_and_replayed(pool, comm, each, exchange):
    require(exchange)
    size = each * processes()
    a2a = a2a_size(comm, size)
    for partition in ("zigzag", "balanced"):
        options = {"partition": partition, "comm": comm, "a2a_size": a2a, **WRITTEN_FOR_THESE}
        case = Case(PACK, cp_size=size, **options)
        assert not pool.differences(case, "bfloat16", exchange, each, replayed=True), partition


# What TransformerEngine's own tests of context parallelism take: two documents of up to 4,096.
SHAPES = [
    {"num_heads": heads, "num_kv_heads": kv_heads, "head_dim": dim, "head_dim_v": 128}
    for heads, kv_heads in ((12, 12), (32, 4), (12, 2))
    for dim in (128, 192)
]
TE_MASKS = {
    "full": rs.Mask.full(),
    "causal": rs.Mask.causal(),
    "window 512": rs.Mask.sliding_window(512, 0),
    "window 512 both": rs.Mask.sliding_window(512, 512),
    "window 128": rs.Mask.sliding_window(128, 0),
}


@EXCHANGES
@pytest.mark.parametrize("comm", rs.COMMS)
def test_shapes_of_transformer_engine(pool, comm, exchange):
    require(exchange)
    size, rng = processes(), np.random.default_rng(4096)
    for shape, (name, mask) in itertools.product(SHAPES, TE_MASKS.items()):
        lengths = [int(x) for x in rng.integers(0, 4097, 2)]
        layout = rs.PackedLayout.from_lengths(lengths, pad_to_multiple_of=2 * size)
        options = {"cp_size": size, "comm": comm, "a2a_size": a2a_size(comm, size)}
        case = Case(layout, mask=mask, **options, **shape)
        assert not pool.differences(case, "bfloat16", exchange, 1), (shape, name, lengths)
