"""Plans as JSON: self-describing tables, one row of integers a line of meaning."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from ringside import _core

if TYPE_CHECKING:
    from ringside._plan import Plan

FORMAT = "ringside.plan"
VERSION = 1


def to_json(plan: Plan) -> str:
    """Everything a plan is; see Plan.to_json."""
    return json.dumps(
        {
            "format": FORMAT,
            "version": VERSION,
            "partition": plan.partition,
            "comm": plan.comm,
            "num_heads": plan.num_heads,
            "num_kv_heads": plan.num_kv_heads,
            "mask": {
                "window_size": list(plan.mask.window_size),
                "chunk_size": plan.mask.chunk_size,
                "align": plan.mask.align,
            },
            "layout_q": _layout_to_dict(plan.layout_q),
            "layout_k": _layout_to_dict(plan.layout_k),
            "tables": {
                name: {"columns": columns, "rows": cells.tolist()}
                for name, (columns, cells) in plan.tables().items()
            },
        }
    )


def arguments(text: str) -> dict[str, Any]:
    """The arguments from which Plan() makes the plan that the text describes."""
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}. Pass what Plan.to_json() returned") from None
    if not isinstance(data, dict) or (data.get("format"), data.get("version")) != (FORMAT, VERSION):
        raise ValueError(f'expected {{"format": "{FORMAT}", "version": {VERSION}, ...}}')
    mask = _field(data, "mask", dict)
    return {
        "layout_q": _layout_from_dict(_field(data, "layout_q", dict)),
        "layout_k": _layout_from_dict(_field(data, "layout_k", dict)),
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


def _field(data: dict[str, Any], name: str, kind: type) -> Any:
    value = data.get(name)
    if not isinstance(value, kind):
        raise ValueError(f'"{name}" is {value!r}; expected a {kind.__name__}')
    return value


def _layout_to_dict(layout: _core.PackedLayout) -> dict[str, list[int]]:
    return {
        "cu_seqlens": layout.cu_seqlens.tolist(),
        "cu_seqlens_padded": layout.cu_seqlens_padded.tolist(),
    }


def _layout_from_dict(data: dict[str, Any]) -> _core.PackedLayout:
    return _core.PackedLayout(
        _field(data, "cu_seqlens", list), _field(data, "cu_seqlens_padded", list)
    )


def _cells(name: str, table: Any) -> np.ndarray:
    if not isinstance(table, dict):
        raise ValueError(f'table "{name}" is {table!r}; expected a dict')
    columns, rows = _field(table, "columns", list), _field(table, "rows", list)
    expected = _core.TABLE_COLUMNS.get(name, columns)
    if columns != expected:
        raise ValueError(f'table "{name}" has columns {columns}; expected {expected}')
    cells = np.array(rows).reshape(len(rows), len(columns)) if rows else np.zeros((0, len(columns)))
    if rows and cells.dtype.kind != "i":
        raise ValueError(f'table "{name}" holds {cells.dtype}; expected integers')
    limits = np.iinfo(np.int32)
    if rows and not (limits.min <= cells.min() and cells.max() <= limits.max):
        raise ValueError(f'table "{name}" holds a number beyond int32')
    return cells.astype(np.int32)
