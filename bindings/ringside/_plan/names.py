"""The names of partitions and transports, for type checkers; the tables are in C++."""

from __future__ import annotations

from typing import Literal

PartitionName = Literal[
    "contiguous", "zigzag", "striped", "whole_pack", "whole_pack_zigzag", "balanced"
]
Comm = Literal["p2p", "all_gather", "a2a", "a2a+p2p", "fetch"]
