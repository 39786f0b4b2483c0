"""PackedLayout's methods that take arrays answer in the caller's kind of them."""

from __future__ import annotations

from ringside._arguments.kinds import answers_in_kind
from ringside._core import PackedLayout

for _name, _array in (("pack", "arrays"), ("unpack", "x"), ("roll", "x")):
    _around = answers_in_kind(_array, names=("self", _array))
    setattr(PackedLayout, _name, _around(getattr(PackedLayout, _name)))
