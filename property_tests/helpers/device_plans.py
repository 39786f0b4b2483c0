"""What a DevicePlan can be made for: whatever keeps its shape for any lengths."""

from ringside import _core

PARTITIONS = tuple(name for name, p in _core.PARTITION_TABLE.items() if p["closed_form"])
COMMS = tuple(name for name, comm in _core.COMM_TABLE.items() if comm["moves_whole_buffers"])


def takes(case):
    """Whether a DevicePlan can have the partition and the transport of a case."""
    return isinstance(case.partition, str) and case.partition in PARTITIONS and case.comm in COMMS
