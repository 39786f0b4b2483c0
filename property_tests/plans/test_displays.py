"""What notebooks show of layouts, masks and plans: always something, small, quick and true."""

import base64
import re
import struct
import subprocess
import sys
import zlib
from html.parser import HTMLParser

import numpy as np
import pytest
import ringside as rs
from hypothesis import given, settings
from ringside._pictures.colours import BLACK, SEEN, hex_of, rank_colours, rgb
from ringside._pictures.display import quietly
from ringside._pictures.png import png
from ringside.testing import strategies

VOID = {"img", "br"}


class Balanced(HTMLParser):
    """Fails where a tag is closed that was not opened last."""

    def __init__(self):
        super().__init__()
        self.open, self.cells = [], []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.cells.append(data)


def parsed(value):
    """The text of a display, piece by piece."""
    text = value._repr_html_()
    assert isinstance(text, str) and len(text) < 60_000
    parser = Balanced()
    parser.feed(text)
    parser.close()
    assert parser.open == []
    return parser.cells


def images(value, shown=None):
    """[height, width, 3] bytes of each image of a display."""
    found = []
    shown = shown or value._repr_html_()
    for text in re.findall(r"data:image/png;base64,([^\"]+)", shown):
        data = base64.b64decode(text)
        assert data[:8] == b"\x89PNG\r\n\x1a\n"
        width, height = struct.unpack(">II", data[16:24])
        at, packed = 8, b""
        while at < len(data):
            (size,) = struct.unpack(">I", data[at : at + 4])
            kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
            assert struct.unpack(">I", data[at + 8 + size : at + 12 + size])[0] == zlib.crc32(
                kind + body
            )
            packed += body if kind == b"IDAT" else b""
            at += 12 + size
        lines = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, 1 + 3 * width)
        assert (lines[:, 0] == 0).all()
        found.append(lines[:, 1:].reshape(height, width, 3))
    return found


def colour(text):
    return np.rint(rgb(text) * 255).astype(np.uint8)


def test_an_image_written_by_hand_is_read_as_it_was():
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3)).astype(np.uint8)
    Image = pytest.importorskip("PIL.Image")
    import io

    read = np.asarray(Image.open(io.BytesIO(png(pixels))).convert("RGB"))
    np.testing.assert_array_equal(read, pixels)


@given(strategies.layouts())
@settings(max_examples=30)
def test_every_layout_is_shown_with_its_numbers(layout):
    cells = parsed(layout)
    told = min(layout.num_sequences, 8)
    at = cells.index("rows") + 1
    numbers = np.array([int(x.replace(",", "")) for x in cells[at : at + 4 * told]]).reshape(-1, 4)
    np.testing.assert_array_equal(numbers[:, 2], layout.lengths[:told])
    np.testing.assert_array_equal(numbers[:, 3], layout.padded_lengths[:told])


@given(strategies.masks())
@settings(max_examples=20)
def test_every_mask_is_shown_as_it_is(mask):
    shown = mask._repr_html_()
    sizes = re.findall(r"([\d,]+) queries down, ([\d,]+) keys", shown)
    for image, words in zip(images(mask, shown), sizes, strict=True):
        queries, keys = (int(x.replace(",", "")) for x in words)
        height, width = image.shape[:2]
        seen = (image == colour(SEEN)).all(axis=2)
        for row, column in np.random.default_rng(keys).integers(0, (height, width), (100, 2)):
            q, k = int(row) * queries // height, int(column) * keys // width
            assert seen[row, column] == mask.allows(q, k, queries, keys)


@given(strategies.plans())
@settings(max_examples=25)
def test_every_plan_is_shown_and_proved(plan):
    cells = parsed(plan)
    assert any(cell.startswith("proved by verify()") for cell in cells)
    pairs = plan.cost().pairs.sum(axis=1)
    shown = [cell.strip() for cell in cells]
    for rank in range(min(plan.cp_size, 8)):
        assert f"{pairs[rank]:,}" in shown and str(rank) in shown
    chips = re.findall(r"background:(#\w+);color", plan._repr_html_())
    assert chips == [hex_of(c) for c in rank_colours(plan.cp_size)[:8]]


def test_a_refused_plan_says_why_and_shows_what_is_missing():
    plan = rs.plan(rs.PackedLayout([0, 64]), cp_size=4).first_steps(1)
    with pytest.raises(rs.PlanError) as refused:
        plan.verify()
    cells = parsed(plan)
    assert "refused by verify():" in cells and f" {refused.value}" in cells
    (image,) = images(plan)
    step = image.shape[0] // 64
    black = (image == colour(BLACK)).all(axis=2)
    assert black[30 * step, 0]  # row 30 is rank 3's, key 0 of rank 0: a later step has them
    assert not black[30 * step, 30 * step]
    (whole,) = images(rs.plan(rs.PackedLayout([0, 64]), cp_size=4))
    assert not (whole == colour(BLACK)).all(axis=2).any()


@pytest.mark.parametrize(
    "value",
    [rs.PackedLayout([0]), rs.PackedLayout([0, 0, 0]), rs.plan(rs.PackedLayout([0]), cp_size=3)],
    ids=["no document", "empty documents", "plan of nothing"],
)
def test_what_is_empty_is_shown(value):
    assert parsed(value)


def test_large_plans_are_named_and_nothing_is_measured():
    plan = rs.plan(rs.PackedLayout.from_lengths([1 << 20]), cp_size=64)
    assert any("verify()" in cell for cell in parsed(plan)) and not images(plan)


def test_a_display_that_fails_leaves_the_word_to_repr():
    def broken(value):
        raise ValueError(value)

    assert quietly(broken)(5) is None


def test_displays_need_no_matplotlib():
    code = (
        "import ringside as rs, sys; layout = rs.PackedLayout([0, 8]);"
        "assert all(x._repr_html_() for x in (layout, rs.Mask.full(), rs.plan(layout, cp_size=2)));"
        "print('matplotlib' in sys.modules)"
    )
    printed = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert printed.strip() == "False"
