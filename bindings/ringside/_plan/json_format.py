"""Plans as JSON: self-describing tables, one row of integers a line of meaning."""

from __future__ import annotations

import json
from collections.abc import Collection
from itertools import chain
from typing import Any

import numpy as np

from ringside import _core
from ringside._json import parsed

FORMAT = "ringside.plan"
VERSION = 1
FIELDS = (
    *("format", "version", "partition", "comm", "num_heads", "num_kv_heads"),
    *("mask", "layout_q", "layout_k", "tables"),
)


def to_json(self: _core.Plan) -> str:
    """The whole plan as JSON: layouts, mask, and its tables with named columns.

    >>> import ringside as rs
    >>> plan = rs.plan(rs.PackedLayout([0, 4]), cp_size=2)
    >>> rs.Plan.from_json(plan.to_json()) == plan
    True
    """
    return json.dumps(
        {
            "format": FORMAT,
            "version": VERSION,
            "partition": self.partition,
            "comm": self.comm,
            "num_heads": self.num_heads,
            "num_kv_heads": self.num_kv_heads,
            "mask": {
                "window_size": list(self.mask.window_size),
                "chunk_size": self.mask.chunk_size,
                "align": self.mask.align,
            },
            "layout_q": _layout_to_dict(self.layout_q),
            "layout_k": _layout_to_dict(self.layout_k),
            "tables": {
                name: {"columns": columns, "rows": cells.tolist()}
                for name, (columns, cells) in self.tables().items()
            },
        }
    )


def arguments(text: str) -> dict[str, Any]:
    """The arguments from which Plan() makes the plan that the text describes."""
    data = _parsed(text)
    wanted = {"format": FORMAT, "version": VERSION}
    if not isinstance(data, dict) or repr({key: data.get(key) for key in wanted}) != repr(wanted):
        raise ValueError(
            f'text is not a plan; expected {{"format": "{FORMAT}", "version": {VERSION}, ...}}'
        )
    _require_known(data, "the plan", FIELDS)
    mask = _field(data, "mask", dict)
    _require_known(mask, "mask", ("window_size", "chunk_size", "align"))
    _require_known(_field(data, "tables", dict), "tables", _core.TABLE_COLUMNS)
    return {
        "layout_q": _layout_from_dict(data, "layout_q"),
        "layout_k": _layout_from_dict(data, "layout_k"),
        "mask": _core.Mask(
            window_size=tuple(_field(mask, "window_size", list)),
            chunk_size=_field(mask, "chunk_size", int),
            align=_field(mask, "align", str),
        ),
        "num_heads": _field(data, "num_heads", int),
        "num_kv_heads": _field(data, "num_kv_heads", int),
        "partition": _field(data, "partition", str),
        "comm": _field(data, "comm", str),
        "tables": {
            name: _cells(name, table) for name, table in _field(data, "tables", dict).items()
        },
    }


def _parsed(text: str) -> Any:
    if not isinstance(text, str | bytes | bytearray):
        raise TypeError(
            f"text is a {type(text).__name__}; expected a str. Pass what Plan.to_json() returned"
        )
    try:
        return parsed(text)
    except ValueError as error:
        raise ValueError(f"text is not JSON: {error}. Pass what Plan.to_json() returned") from None


def _require_known(data: dict[str, Any], where: str, known: Collection[str]) -> None:
    for key in data:
        if key not in known:
            raise ValueError(f'"{key}" of {where} is unknown; expected only {", ".join(known)}')


def _field(data: dict[str, Any], name: str, kind: type) -> Any:
    value = data.get(name)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ValueError(f'"{name}" is {value!r}; expected a {kind.__name__}')
    return value


def _layout_to_dict(layout: _core.PackedLayout) -> dict[str, list[int]]:
    return {
        "cu_seqlens": layout.cu_seqlens.tolist(),
        "cu_seqlens_padded": layout.cu_seqlens_padded.tolist(),
    }


def _layout_from_dict(plan: dict[str, Any], name: str) -> _core.PackedLayout:
    data = _field(plan, name, dict)
    _require_known(data, name, ("cu_seqlens", "cu_seqlens_padded"))
    return _core.PackedLayout(
        _field(data, "cu_seqlens", list), _field(data, "cu_seqlens_padded", list)
    )


def _cells(name: str, table: Any) -> np.ndarray:
    if not isinstance(table, dict):
        raise ValueError(f'table "{name}" is {table!r}; expected a dict')
    _require_known(table, f'table "{name}"', ("columns", "rows"))
    columns, rows = _field(table, "columns", list), _field(table, "rows", list)
    expected = _core.TABLE_COLUMNS.get(name, columns)
    if columns != expected:
        raise ValueError(f'table "{name}" has columns {columns}; expected {expected}')
    if not all(isinstance(row, list) and len(row) == len(columns) for row in rows):
        raise ValueError(f'table "{name}" has rows that are not lists of {len(columns)} integers')
    cells = np.array(rows) if rows else np.zeros((0, len(columns)))
    if rows and cells.dtype.kind != "i":
        raise ValueError(f'table "{name}" holds {cells.dtype}; expected integers')
    if not set(map(type, chain.from_iterable(rows))) <= {int}:  # NumPy takes true for 1
        raise ValueError(f'table "{name}" holds true or false; expected integers')
    limits = np.iinfo(np.int32)
    if rows and not (limits.min <= cells.min() and cells.max() <= limits.max):
        raise ValueError(f'table "{name}" holds a number beyond int32')
    return cells.astype(np.int32)
