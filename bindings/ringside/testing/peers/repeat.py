"""The script that shows a fault of a package without Ringside: numbers, the call, what is expected.

It is put together from the part_*.py beside this module, which import nothing of Ringside, and the
peer's calls.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ringside.testing.adapters import pack_mask
from ringside.testing.cases import Case
from ringside.testing.peers.adapter import STAND_IN, Feature, Peer

__all__ = ["script_of"]

HERE = Path(__file__).parent
KERNELS = {"cpu": "part_flash_attn.py", "cuda": "part_torchs_kernels.py"}
DTYPES = {
    "torch": "torch.{}",
    "jax": "jax.numpy.{}",
}
WRITTEN_OUT = 4000  # numbers, at most: more are drawn again, by their seed


def script_of(
    peer: Peer,
    folder: Path,
    feature: Feature,
    case: Case,
    *,
    nan: bool = True,
    device: str = "cpu",
) -> str:
    """Python that prints how far each result is from what it should be.

    Args:
        peer, feature: what is called.
        folder: of the peer, where calls.py is.
        case: the problem.
        nan: whether padding holds NaN.
        device: "cpu" or "cuda".
    """
    plan = case.plan()
    install = " ".join(peer.requirements)
    where = "(CPU is enough)" if device == "cpu" else "(a GPU for each rank)"
    shapes = f"numpy, {peer.arrays} {where}"
    head = (
        f'"""{peer.package} {peer.version}: {feature.entry}, {feature.name}.\n\n'
        f"pip install {install}\nNeeds {shapes}, and nothing else.\n"
        '"""\n'
    )
    rows = ", ".join(_row_numbers(plan.row_indices(rank)) for rank in range(plan.cp_size))
    seen = pack_mask(plan.layout_q, plan.layout_k, plan.mask)
    arguments = feature.arguments(plan, case.softmax_scale)
    is_long = sum(x.size for x in case.arrays()) > WRITTEN_OUT
    numbers = [
        "# The problem: all rows, each rank's rows, who sees whom.",
        f"ROWS = [{rows}]",
        f"SEEN = [{', '.join(_row_numbers(np.flatnonzero(row)) for row in seen)}]",
        f"SCALE = {case.scale!r}",
        f"ARGUMENTS = {arguments!r}",
        f"GRADIENTS = {feature.gradients}",
        f"DTYPE = {DTYPES[peer.arrays].format(case.dtype)}",
        f"DEVICE = {device!r}",
        f"CALL = {feature.call.__name__}",
        f"PROBLEM = {_drawn(case, nan) if is_long else _literal(case, nan)}",
    ]
    runner = "part_jax.py" if peer.arrays == "jax" else "part_ranks.py"
    parts = [
        head,
        f"import {peer.arrays}\n",
        _text(HERE / KERNELS[device]) if peer.stand_in else "",
        _played(folder),
        _text(folder / "calls.py"),
        _text(HERE / "part_drawn.py") if is_long else "",
        "nan = float('nan')\n" + "\n".join(numbers),
        _text(HERE / "part_truth.py"),
        _text(HERE / runner),
    ]
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def _played(folder: Path) -> str:
    """The peer's own stand-in, put in its place, or nothing."""
    own = folder / STAND_IN
    return f"{_text(own).strip()}\n\n\ninstall()" if own.is_file() else ""


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _row_numbers(rows: npt.NDArray[np.int64]) -> str:
    """As a list; as a range where they are many and one behind the other.

    >>> _row_numbers(np.arange(3)), _row_numbers(np.arange(5, 90))
    ('[0, 1, 2]', '[*range(5, 90)]')
    """
    if rows.size > 8 and (np.diff(rows) == 1).all():
        return f"[*range({rows[0]}, {rows[-1] + 1})]"
    return repr(rows.tolist())


def _drawn(case: Case, nan: bool) -> str:
    """A call of part_drawn.py's, for what _literal() would write."""
    arrays: list[str] = []
    for x in case.arrays():
        valid = np.flatnonzero(~np.isnan(x).any((1, 2)))
        arrays.append(f"({_row_numbers(valid)}, {x.shape})")
    other = "nan" if nan else "0.0"
    return f"drawn({case.seed}, {case.dtype!r}, {other}, {', '.join(arrays)})"


def _literal(case: Case, nan: bool) -> str:
    """q, k, v, dout as (numbers, shape): short to write, exact to read."""
    arrays: list[Any] = []
    for x in case.arrays():
        x = x if nan else np.nan_to_num(x)
        arrays.append((x.ravel().tolist(), x.shape))
    return repr(arrays)
