"""What Python says of a call whose arguments do not fit a signature, for functions of C++."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

KINDS = (
    ("posonlyargs", inspect.Parameter.POSITIONAL_ONLY),
    ("args", inspect.Parameter.POSITIONAL_OR_KEYWORD),
    ("kwonlyargs", inspect.Parameter.KEYWORD_ONLY),
)


def why_refused(text: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """A message in Python's words from pybind11's, which lists the signatures of a function.

    >>> listed = "f(): incompatible function arguments.\\n    1. (q: int, *, k: int = 0) -> int\\n"
    >>> why_refused(listed, [], {})
    "f(): missing a required argument: 'q'; expected f(q, *, k=0)"
    """
    is_constructor = "(): incompatible constructor arguments." in text
    first = text.split("\n    1. ", 1)[1].split("\n", 1)[0]
    owner, _, rest = first.partition("(")
    name = owner.rpartition(".")[2] if is_constructor else text.partition("(")[0]
    tree = _arguments("(" + rest)
    given = list(args)[1:] if is_constructor else list(args)
    try:
        _signature(tree).bind(*given, **kwargs)
        problem = f"got {', '.join(type(x).__name__ for x in given) or 'nothing'}"
    except TypeError as error:
        problem = str(error)
    return f"{name}(): {problem}; expected {name}({ast.unparse(tree)})"


def _arguments(signature: str) -> ast.arguments:
    """Parsed, without annotations."""
    (function,) = ast.parse(f"def f{signature}: ...").body
    assert isinstance(function, ast.FunctionDef)
    for field, _ in KINDS:
        for argument in getattr(function.args, field):
            argument.annotation = None
    return function.args


def _signature(tree: ast.arguments) -> inspect.Signature:
    positional = len(tree.posonlyargs) + len(tree.args)
    empty = inspect.Parameter.empty
    defaults = [empty] * (positional - len(tree.defaults)) + tree.defaults
    defaults += [empty if default is None else default for default in tree.kw_defaults]
    named = [(argument.arg, kind) for field, kind in KINDS for argument in getattr(tree, field)]
    return inspect.Signature(
        [
            inspect.Parameter(name, kind, default=default)
            for (name, kind), default in zip(named, defaults, strict=True)
        ]
    )
