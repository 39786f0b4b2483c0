"""What processes write to stderr, line by line and whole, each with the number of its process."""

from __future__ import annotations

import contextlib
import re
import sys
import threading
from collections.abc import Iterator
from typing import IO, Any

LONGEST = 1 << 16  # of a line: longer ones go in pieces
LATE_S = 1.0  # for what a process wrote last; a process of its own may hold the pipe longer

_ONE_AT_A_TIME = threading.Lock()


class Told(threading.Thread):
    """Reads a pipe until its end and writes its lines to stderr.

    Args:
        pipe: of a process.
        number: which comes before each line.
    """

    def __init__(self, pipe: IO[bytes], number: int) -> None:
        super().__init__(daemon=True)
        self.pipe, self.before = pipe, f"[{number}] ".encode()
        self.start()

    def run(self) -> None:
        """Reads on where nobody listens any more: the process must not wait for it."""
        with self.pipe:
            for line in whole_lines(self.pipe):
                with contextlib.suppress(OSError, ValueError), _ONE_AT_A_TIME:
                    out = getattr(sys.stderr, "buffer", None)
                    sys.stderr.flush()
                    _write(out, self.before + line)

    def finish(self) -> None:
        """Waits for what was written before the process ended."""
        self.join(LATE_S)


def _write(out: Any, line: bytes) -> None:
    if out is None:  # stderr was replaced by a text file
        sys.stderr.write(line.decode(errors="replace"))
    else:
        out.write(line)
        out.flush()


def whole_lines(pipe: Any) -> Iterator[bytes]:
    """Lines with their ends, which progress bars write as carriage returns; the last gets one.

    >>> import io
    >>> list(whole_lines(io.BytesIO(b"one\\ntwo\\rthree\\r\\nfour")))
    [b'one\\n', b'two\\r', b'three\\r\\n', b'four\\n']
    """
    rest = b""
    while piece := pipe.read1(LONGEST):
        *lines, rest = re.split(rb"(?<=\n)|(?<=\r)(?=[^\n])", rest + piece)
        yield from (line for line in lines if line)
        if len(rest) >= LONGEST:
            yield rest + b"\n"
            rest = b""
    if rest:
        yield rest + b"\n"
