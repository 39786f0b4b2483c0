"""A headless Chromium, driven by its DevTools protocol over two pipes: no package is needed.

Tests that open a page fail where there is no browser: what nobody looked at has not been shown.
"""

import base64
import json
import os
import resource
import select
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--no-first-run", "--disable-extensions", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--hide-scrollbars", "--mute-audio"),
    *("--force-color-profile=srgb", "--remote-debugging-pipe", "about:blank"),
)
PATIENCE = 60  # seconds for one answer, on a machine that does much else


def found():
    """The browser's path."""
    for name in filter(None, (os.environ.get("RINGSIDE_BROWSER"), *NAMES)):
        if path := shutil.which(name):
            return path
    raise FileNotFoundError(
        f"got none of {', '.join(NAMES)}; expected a Chromium, in which tests open pages. Fix: "
        "apt-get install chromium, or RINGSIDE_BROWSER=/path/to/one"
    )


def unlimited():
    """For the child: a browser reserves far more addresses than a suite with a fault may."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))


class Browser:
    """One process of Chromium with one page; a context manager."""

    def __init__(self, width=1400, height=1000):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        command = [found(), *FLAGS, f"--user-data-dir={self.profile.name}"]
        pipes = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'
        self.process = subprocess.Popen(
            ["bash", "-c", pipes, *command],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=unlimited,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._bytes, self._number, self.session, self.events = b"", 0, None, []
        self._attach()
        self.resize(width, height)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self._out)
        os.close(self._in)
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.profile.cleanup()

    def _attach(self):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method, **parameters):
        """A command's result; events that come meanwhile are kept."""
        self._number += 1
        command = {"id": self._number, "method": method, "params": parameters}
        if self.session:
            command["sessionId"] = self.session
        os.write(self._out, json.dumps(command).encode() + b"\0")
        deadline = time.monotonic() + PATIENCE
        while True:
            answer = self._next(deadline, method)
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self.events.append(answer)

    def _next(self, deadline, doing):
        while b"\0" not in self._bytes:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._in], [], [], left)[0]:
                raise TimeoutError(f"no answer to {doing} in {PATIENCE} s")
            part = os.read(self._in, 1 << 20)
            assert part, f"the browser ended during {doing}"
            self._bytes += part
        message, _, self._bytes = self._bytes.partition(b"\0")
        return json.loads(message)

    # --- what a reader does

    def resize(self, width, height):
        """Of the window."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            **{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )

    def open(self, path, address=""):
        """Loads a file and waits for it; forgets what happened before."""
        self.call("Page.navigate", url="about:blank")
        self.events.clear()
        self.call("Page.navigate", url=Path(path).resolve().as_uri() + address)
        deadline = time.monotonic() + PATIENCE
        while self.run("document.readyState") != "complete" or self.run("location.href").startswith(
            "about:"
        ):
            assert time.monotonic() < deadline, f"{path} does not load"

    def run(self, script):
        """The value of an expression of JavaScript, once it is there."""
        how = {"returnByValue": True, "awaitPromise": True}
        result = self.call("Runtime.evaluate", expression=script, **how)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def mouse(self, x, y, *, click=False):
        """Moves there, in pixels of the window."""
        self._mouse("mouseMoved", x, y)
        if click:
            self._mouse("mousePressed", x, y, button="left", clickCount=1)
            self._mouse("mouseReleased", x, y, button="left", clickCount=1)

    def _mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def key(self, key):
        """Presses one."""
        text = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def screenshot(self, path):
        """Of the whole page, in a window as high; what lies beyond a window may never be drawn."""
        width = self.run("innerWidth")
        self.resize(width, max(100, self.run("document.documentElement.scrollHeight")))
        taken = self.call("Page.captureScreenshot", format="png")
        Path(path).write_bytes(base64.b64decode(taken["data"]))

    # --- what happened

    def complaints(self):
        """Errors and warnings of the console, the page's script and the browser."""
        self.run("0")  # all that was said before has been heard
        named = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [event for event in self.events if event.get("method") in named]

    def requests(self):
        """Addresses that were asked for."""
        sent = [e for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]
