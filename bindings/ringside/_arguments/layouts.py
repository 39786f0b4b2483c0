"""PackedLayout's methods that take arrays answer in the caller's kind of them."""

from __future__ import annotations

from ringside._arguments.gradients import rows_in_kind
from ringside._core import PackedLayout

for _name, _array, _fill in (
    ("pack", "arrays", "fill_value"),
    ("unpack", "x", None),
    ("roll", "x", "fill_value"),
):
    _around = rows_in_kind(_array, fill=_fill, names=("self", _array))
    setattr(PackedLayout, _name, _around(getattr(PackedLayout, _name)))
