"""What processes of a group say to each other besides arrays: proofs of a key, then JSON.

Nothing that comes is ever run or unpickled. A connection begins with a challenge of both ends:
who does not hold the key is heard no further.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import socket
import struct
from collections.abc import Iterator
from typing import Any

Message = dict[str, Any]

GREETING = b"ringside group 1"
NONCE = 32
LENGTH = struct.Struct(">I")
MOST = 1 << 26  # bytes of one message


class WrongKey(Exception):
    """The other end holds another key, or is no group of ours."""


def _proof(key: bytes, role: bytes, mine: bytes, theirs: bytes) -> bytes:
    return hmac.digest(key, role + mine + theirs, hashlib.sha256)


def exactly(connection: socket.socket, count: int) -> bytes:
    """So many bytes; EOFError where the other end closes before."""
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise EOFError("the other end closed the connection")
        data += part
    return data


def challenge_as_server(connection: socket.socket, key: bytes) -> None:
    """Shows the key to who has shown it; raises WrongKey where that is another one."""
    nonce = secrets.token_bytes(NONCE)
    connection.sendall(GREETING + nonce)
    answer = exactly(connection, 2 * NONCE)
    theirs, proof = answer[:NONCE], answer[NONCE:]
    if not hmac.compare_digest(proof, _proof(key, b"client", nonce, theirs)):
        connection.sendall(bytes(NONCE))
        raise WrongKey
    connection.sendall(_proof(key, b"server", theirs, nonce))


def challenge_as_client(connection: socket.socket, key: bytes) -> None:
    """Shows the key and wants to be shown it; raises WrongKey where the server has another."""
    if exactly(connection, len(GREETING)) != GREETING:
        raise WrongKey
    nonce, theirs = secrets.token_bytes(NONCE), exactly(connection, NONCE)
    connection.sendall(nonce + _proof(key, b"client", theirs, nonce))
    if not hmac.compare_digest(exactly(connection, NONCE), _proof(key, b"server", nonce, theirs)):
        raise WrongKey


def encoded(message: Message) -> bytes:
    """A message as it travels; infinities and NaN travel, too."""
    text = json.dumps(message, separators=(",", ":")).encode()
    return LENGTH.pack(len(text)) + text


def send(connection: socket.socket, message: Message) -> None:
    """A message, waiting until it is gone."""
    connection.sendall(encoded(message))


def receive(connection: socket.socket) -> Message:
    """The next message, waiting for it."""
    (length,) = LENGTH.unpack(exactly(connection, LENGTH.size))
    return _decoded(exactly(connection, _checked(length)))


def _checked(length: int) -> int:
    if length > MOST:
        raise EOFError(f"a message of {length} bytes; expected at most {MOST}")
    return length


def _decoded(text: bytes) -> Message:
    message = json.loads(text)
    if not isinstance(message, dict):
        raise EOFError(f"a message that is a {type(message).__name__}; expected an object")
    return message


class Reader:
    """Takes messages out of what comes in pieces.

    >>> reader = Reader()
    >>> data = encoded({"a": 1}) + encoded({"b": 2})
    >>> list(reader.messages(data[:3])), list(reader.messages(data[3:]))
    ([], [{'a': 1}, {'b': 2}])
    """

    def __init__(self) -> None:
        self._data = bytearray()

    def messages(self, data: bytes) -> Iterator[Message]:
        """Those that are complete with this piece."""
        self._data += data
        while len(self._data) >= LENGTH.size:
            length = _checked(LENGTH.unpack_from(self._data)[0])
            end = LENGTH.size + length
            if len(self._data) < end:
                return
            text = bytes(self._data[LENGTH.size : end])
            del self._data[:end]
            yield _decoded(text)
