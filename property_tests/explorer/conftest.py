"""One browser for all tests of pages, and what every page must be: complete, silent and alone."""

import math

import numpy as np
import pytest
from browser import Browser


class Reader:
    """Opens pages, and reads what they show."""

    def __init__(self, browser, folder):
        self.browser, self.folder = browser, folder

    def open(self, page, address=""):
        """Shows a page, which has asked nothing of anybody and complained of nothing."""
        path = self.folder / "plan.html"
        page.save(path)
        self.browser.open(path, address)
        self.check()
        return self

    def check(self):
        """Nothing was complained of or asked for since the page was opened."""
        assert self.browser.complaints() == []
        asked = [address.partition("#")[0] for address in self.browser.requests()]
        assert asked == [(self.folder / "plan.html").resolve().as_uri()]
        assert self.ready() > 0

    def ready(self):
        """Milliseconds from its address to its last view."""
        return float(self.run("document.documentElement.dataset.ready"))

    def run(self, script):
        """The value of an expression of JavaScript."""
        return self.browser.run(script)

    def text(self, selector, number=0):
        """What stands in the element; the number-th of them."""
        return self.run(f"document.querySelectorAll({selector!r})[{number}].textContent")

    def all_text(self):
        """All that a reader can see in words."""
        return self.run("document.body.innerText")

    def box(self, selector, number=0):
        """(left, top, width, height) in the window."""
        rect = f"document.querySelectorAll({selector!r})[{number}].getBoundingClientRect()"
        return self.run(f"(({{x, y, width, height}}) => [x, y, width, height])({rect})")

    def at(self, selector, x, y, *, click=False, number=0):
        """Points at a place of an element, both in parts of its size."""
        left, top, width, height = self.box(selector, number)
        self.browser.mouse(left + x * width, top + y * height, click=click)

    def at_cell(self, selector, cell, cells, *, box=None, number=0, **more):
        """Points at one of the (columns, rows) that a canvas shows, at a whole pixel within it."""
        box = box or self.box(selector, number)
        n = enumerate(zip(cell, cells, strict=True))
        self.browser.mouse(*[math.ceil(box[i] + box[2 + i] * c / of) for i, (c, of) in n], **more)

    def go(self, address):
        """To another address of the page."""
        heard = "addEventListener('hashchange', done, {once: true})"
        self.run(
            f"new Promise((done) => {{ {heard}; location.hash = {address!r}; }}).then(() => 0)"
        )

    def pixels(self, selector, number=0):
        """[height, width, 3] of a canvas's own pixels; read once, as a browser warns of more."""
        canvas = f"document.querySelectorAll({selector!r})[{number}]"
        data = f"{canvas}.getContext('2d').getImageData(0, 0, {canvas}.width, {canvas}.height).data"
        packed = np.array(self.run(f"[...new Uint32Array({data}.buffer)]"), np.uint32)
        rgba = packed.astype("<u4").view(np.uint8).reshape(*self.size(selector, number)[::-1], 4)
        return rgba[..., :3].astype(int)

    def size(self, selector, number=0):
        """(width, height) of a canvas in its own pixels."""
        canvas = f"document.querySelectorAll({selector!r})[{number}]"
        return tuple(self.run(f"[{canvas}.width, {canvas}.height]"))

    def state(self):
        """What the address says."""
        return dict(self.run("[...new URLSearchParams(location.hash.slice(1))]"))

    def key(self, *keys):
        """Presses keys."""
        for key in keys:
            self.browser.key(key)


@pytest.fixture(scope="session")
def browser():
    """Started once."""
    with Browser(width=1400, height=2600) as started:
        yield started


@pytest.fixture(scope="session")
def reader(browser, tmp_path_factory):
    """Of pages."""
    return Reader(browser, tmp_path_factory.mktemp("pages"))
