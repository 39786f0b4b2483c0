"""Attention to check and to time: ours by a plan, and FlashAttention 2 as torch has it.

Imported where torch and a GPU are.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from ringside._arrays import cuda as _cuda
from ringside._bench.gpu.clock import Call, is_flash_attention, is_our_attention
from ringside._bench.gpu.problem import SampledOperands, Tensors
from ringside._plan.device.plan import DevicePlan
from ringside._plan.plan import Plan
from ringside.torch import varlen_attention

OFFERED = frozenset(inspect.signature(varlen_attention).parameters)


def families(dtype: str) -> tuple[str | None, ...]:
    """Whose kernels to run: all that take the type where a caller may choose, else the preferred.

    The float32 family also takes other types, converted, but that is not what it is for.
    """
    if "family" not in OFFERED:
        return (None,)
    names = _cuda.cuda_core().KERNEL_FAMILIES
    return tuple(name for name in names if (name == "float32") == (dtype == "float32"))


class Runner:
    """forward and its backward passes, by name."""

    counts: Callable[[str], bool]
    forwards: dict[str, Callable[[], torch.Tensor]]

    def __init__(self, problem: SampledOperands) -> None:
        self.problem = problem

    def start(self) -> None:
        """Runs each forward pass once; the backward passes differentiate these."""
        self.kept = {name: forward() for name, forward in self.forwards.items()}

    def backward(self, name: str) -> tuple[torch.Tensor, ...]:
        """dq, dk, dv."""
        leaves, dout = self.problem.leaves, self.problem.dout
        return torch.autograd.grad(self.kept[name], leaves, dout, retain_graph=True)

    def results(self, name: str) -> Tensors:
        """A new forward pass and its gradients."""
        out = self.forwards[name]()
        grads = torch.autograd.grad(out, self.problem.leaves, self.problem.dout)
        return {"out": out.detach(), **dict(zip(("dq", "dk", "dv"), grads, strict=True))}

    def check(self) -> None:
        """Raises WrongResult unless every backward pass, and its forward pass, is right."""
        for name in self.forwards:
            self.problem.check(self.results(name))

    def calls(self) -> dict[str, Call]:
        """What to time."""
        first = next(iter(self.forwards.values()))
        named = {"forward": Call(first, self.counts)}
        for name in self.forwards:
            named[name] = Call(lambda name=name: self.backward(name), self.counts)
        return named


class Ours(Runner):
    """ringside.torch.varlen_attention with a plan that exists already.

    Args:
        problem: what to compute.
        plan: how; a number is that of the sequences for which a DevicePlan has room, which reads
            the lengths on the GPU.
        family: whose kernels, if that may be chosen.
    """

    counts = staticmethod(is_our_attention)

    def __init__(
        self, problem: SampledOperands, plan: Plan | int, family: str | None = None
    ) -> None:
        super().__init__(problem)
        self.plan: Any = device_plan(problem, plan) if isinstance(plan, int) else plan
        self.wanted = family
        chosen: dict[str, Any] = {} if family is None else {"family": family}
        self.forwards = {"backward, deterministic": self._with(chosen)}
        if "deterministic" in OFFERED:
            self.forwards = {
                "backward": self._with(chosen | {"deterministic": False}),
                "backward, deterministic": self._with(chosen | {"deterministic": True}),
            }
        self.start()  # uploads the plan

    def _with(self, keywords: dict[str, Any]) -> Callable[[], torch.Tensor]:
        return lambda: varlen_attention(*self.problem.leaves, self.plan, **keywords)

    @property
    def family(self) -> str:
        """Whose kernels ran."""
        ran = {program.family for program in self.plan._programs.values()}
        if len(ran) != 1 or self.wanted not in (None, *ran):
            raise RuntimeError(f"kernels of {sorted(ran)} ran; expected {self.wanted or 'one'}")
        return ran.pop()

    def check(self) -> None:
        """As Runner's, on memory that held NaN: rows that nobody writes show."""
        for name in self.forwards:
            self.results(name)
            self._poison_free_memory()
            self.problem.check(self.results(name))

    def _poison_free_memory(self) -> None:
        leaves, programs = self.problem.leaves, self.plan._programs.values()
        sizes = [x.nbytes for x in (*leaves, self.problem.dout)]
        sizes += [n for p in programs for n in (p.forward_bytes, p.backward_bytes)]
        # torch's allocator hands out again what was freed: all at once where there is room for all.
        together = (
            [sizes] if 2 * sum(sizes) < torch.cuda.mem_get_info()[1] else [[n] for n in sizes]
        )
        for part in together:
            blocks = [torch.full((n,), 255, dtype=torch.uint8, device="cuda") for n in part]
            del blocks


def device_plan(problem: SampledOperands, room: int) -> DevicePlan:
    """With room for so many sequences, and the problem's lengths; peers know the longest, too."""
    case = problem.case
    plan = DevicePlan(
        max_sequences=room,
        num_rows_q=sum(case.lengths),
        max_seqlen=max(case.lengths),
        mask=case.mask,
        num_heads=case.num_heads,
        num_kv_heads=case.num_kv_heads,
    )
    plan.set_lengths(torch.tensor(problem.cu_seqlens, device="cuda"))
    return plan


class FlashAttention2(Runner):
    """torch.nn.attention.varlen.varlen_attn.

    Raises:
        LookupError: it has no way to say what the case asks for; why.
    """

    counts = staticmethod(is_flash_attention)

    def __init__(self, problem: SampledOperands) -> None:
        super().__init__(problem)
        case = problem.case
        try:
            from torch.nn.attention.varlen import varlen_attn
        except ImportError as error:
            raise LookupError("torch.nn.attention.varlen is not in this torch") from error
        keywords = self._keywords(inspect.signature(varlen_attn).parameters)
        cu_seqlens, longest = torch.tensor(problem.cu_seqlens, device="cuda"), max(case.lengths)
        where = (cu_seqlens, cu_seqlens, longest, longest)
        self.forwards = {"backward": lambda: varlen_attn(*problem.leaves, *where, **keywords)}
        try:
            self.start()
        except (RuntimeError, TypeError, ValueError) as error:
            raise LookupError(str(error).splitlines()[0][:120]) from error

    def _keywords(self, offered: Any) -> dict[str, Any]:
        case = self.problem.case
        if case.mask.chunk_size:
            raise LookupError("it has no chunks")
        if case.dims[0] != case.dims[1]:
            raise LookupError("its q and v have one head dimension")
        keywords: dict[str, Any] = {}
        if "window_size" in offered:
            keywords["window_size"] = tuple(case.mask.window_size)
        elif case.mask_name in ("causal", "full"):
            keywords["is_causal"] = case.mask_name == "causal"
        else:
            raise LookupError("in this torch it has no windows")
        if "enable_gqa" in offered:
            keywords["enable_gqa"] = case.num_heads != case.num_kv_heads
        return keywords
