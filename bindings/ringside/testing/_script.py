"""The script that repeats a check: how a function is written down so that a script has it again.

What a module holds under a name is imported. An adapter, a functools.partial, a method or an object
whose repr is its constructor call is written out around what can be imported. Of anything else, a
lambda in a function say, the script says that it cannot be written down, and leaves its place free.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from ringside.testing._running import Runner
from ringside.testing.adapters import JaxFunction, TorchForward, TorchFunction

ADAPTERS = (TorchFunction, TorchForward, JaxFunction)
PLACEHOLDER = "...  # put your function here: "


class Unwritable(Exception):
    """Nothing that can be imported makes this object."""


def script_of(runner: Runner) -> str:
    """Python that repeats a check."""
    demands = runner.demands
    kit = ["Case", runner.check] + ([] if demands is None else ["Demands"])
    imports = [
        "from ringside import Mask, PackedLayout, Segment",
        f"from ringside.testing import {', '.join(kit)}",
    ]
    lines, arguments = [f"case = {runner.case!r}"], ["case"]
    call = _put(runner.fn, "fn", imports, lines)
    if (backward := _own_backward(runner)) is not None:
        arguments.append(f"backward={_put(backward, 'backward', imports, lines)}")
    if demands is not None:
        arguments.append(f"demands={demands!r}")
    return "\n".join([*imports, *lines, f"print({runner.check}({', '.join([call, *arguments])}))"])


def _put(value: Any, name: str, imports: list[str], lines: list[str]) -> str:
    """What stands for the object in the call: itself, or a name that is yet to be given."""
    needed, text = written(value, imports)
    imports += needed
    if not text.startswith(PLACEHOLDER):
        return text
    lines.append(f"{name} = {text}")
    return name


def _own_backward(runner: Runner) -> Any:
    """The gradients that were given beside the function, or None."""
    given, own = runner.backward_fn, getattr(runner.fn, "backward", None)
    return None if given is None or given is own or given == own else given


def written(value: Any, given: Sequence[str] = ()) -> tuple[list[str], str]:
    """The imports, and the expression that makes this object; or a place to put it.

    Args:
        value: a function, or what is called like one.
        given: imports that are there already, whose names are taken.

    >>> import ringside as rs
    >>> written(rs.attention)
    (['from ringside._attention.definition import attention'], 'attention')
    >>> written(lambda q: q)[1][:35]
    '...  # put your function here: <fun'
    """
    imports = list(given)
    try:
        text = _expression(value, imports)
    except Unwritable:
        return [], PLACEHOLDER + " ".join(repr(value).split())
    return imports[len(given) :], text


def _expression(value: Any, imports: list[str]) -> str:
    """Adds the imports it needs."""
    for module, path in _places(value):
        first, *rest = path.split(".")
        line, name = f"from {module} import {first}", first
        if any(x != line and x.split()[-1] == first for x in imports):  # the name is taken
            name = f"{first}_of_{module.replace('.', '_')}"
            line += f" as {name}"
        if line not in imports:
            imports.append(line)
        return ".".join([name, *rest])
    if isinstance(value, functools.partial):
        return _partial(value, imports)
    if type(value) in ADAPTERS:
        return f"{_expression(type(value), imports)}({_expression(value.fn, imports)})"
    owner, name = getattr(value, "__self__", None), getattr(value, "__name__", "")
    if owner is not None and getattr(owner, name, None) == value:
        return f"{_expression(owner, imports)}.{name}"
    return _constructed(value, imports)


def _places(value: Any) -> Iterator[tuple[str, str]]:
    """(module, path) under which a fresh interpreter finds it: its own, or a name it was given."""
    own = getattr(value, "__module__", None)
    inner = getattr(getattr(value, "fn", None), "__module__", None)
    path = getattr(value, "__qualname__", None) or getattr(value, "name", "")
    for module in (own, inner):
        holder = sys.modules.get(module) if isinstance(module, str) else None
        if holder is None or module == "__main__":
            continue
        names = [path] if isinstance(path, str) and path.isascii() else []
        names += [name for name, held in vars(holder).items() if held is value]
        for name in names:
            if all(x.isidentifier() for x in name.split(".")) and _found(holder, name) is value:
                yield str(module), name


def _found(holder: Any, path: str) -> Any:
    for name in path.split("."):
        holder = getattr(holder, name, None)
    return holder


def _partial(value: functools.partial[Any], imports: list[str]) -> str:
    parts = [_expression(value.func, imports)]
    parts += [_literal(x) for x in value.args]
    parts += [f"{name}={_literal(x)}" for name, x in value.keywords.items()]
    imports.append("import functools")
    return f"functools.partial({', '.join(parts)})"


def _literal(value: Any) -> str:
    text = repr(value)
    try:
        same = ast.literal_eval(text) == value
    except (ValueError, SyntaxError):
        same = False
    if same is not True:
        raise Unwritable
    return text


def _constructed(value: Any, imports: list[str]) -> str:
    """An object whose repr calls its class with literals only, as a dataclass's does."""
    name, text = type(value).__name__, repr(value)
    try:
        call = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise Unwritable from error
    names = {node.id for node in ast.walk(call) if isinstance(node, ast.Name)}
    if not isinstance(call, ast.Call) or names != {name} or "." in text.partition("(")[0]:
        raise Unwritable
    if _expression(type(value), imports) != name:
        raise Unwritable
    return text
