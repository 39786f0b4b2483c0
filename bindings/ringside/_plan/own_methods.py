"""Methods that stand in files of their own, as those of Plan and DevicePlan do."""

from __future__ import annotations

import inspect
import sys
import types


def own_methods(cls: type) -> None:
    """Lets methods that stand in files of their own look as if they stood in their class.

    That is what help(), errors, pickles and type hints tell of them. Their files, which import the
    class for type checkers only, get it here.

    >>> from ringside import Plan
    >>> Plan.draw.__qualname__
    'Plan.draw'
    >>> inspect.signature(Plan.row_indices).parameters["self"]
    <Parameter "self">
    """
    for name, method in vars(cls).items():
        while isinstance(method, types.FunctionType) and method.__name__ == name:
            setattr(sys.modules[method.__module__], cls.__name__, cls)
            method.__qualname__ = f"{cls.__qualname__}.{name}"
            method.__annotations__.pop("self", None)
            if signature := vars(method).get("__signature__"):
                me, *others = signature.parameters.values()
                me = me.replace(annotation=inspect.Parameter.empty)
                vars(method)["__signature__"] = signature.replace(parameters=[me, *others])
            method = getattr(method, "__wrapped__", None)
