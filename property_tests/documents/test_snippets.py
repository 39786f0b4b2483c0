"""What documents show runs: their Python as it stands; commands, as far as being understood."""

import shlex
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import ringside as rs
from cuda_cases import REASON as NO_GPU
from markdown_it import MarkdownIt
from ringside import cli

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = ["README.md", ".github/CONTRIBUTING.md"]


def blocks(language):
    """[(id, text)] of each of a language."""
    found = []
    for name in DOCUMENTS:
        for token in MarkdownIt().parse((ROOT / name).read_text(encoding="utf-8")):
            if token.type == "fence" and token.info == language:
                found.append(pytest.param(token.content, id=f"{name}:{token.map[0] + 1}"))
    return found


def my_function(q, k, v, *, layout_q, layout_k, mask, softmax_scale):
    """A right implementation, as a reader would have one."""
    wide = (x.astype(np.float64) for x in (q, k, v))
    out, lse = rs.attention(*wide, layout_q, layout_k, mask=mask, softmax_scale=softmax_scale)
    return out.astype(q.dtype), lse


def my_attention(q, k, v, cu_seqlens, *, causal, scale):
    """The same in torch, document by document."""
    import torch

    out = q.new_zeros((*q.shape[:2], v.shape[2]))
    for begin, end in pairwise(cu_seqlens):
        here = slice(int(begin), int(end))
        heads = [x[here].double().transpose(0, 1) for x in (q, k, v)]
        heads[1:] = [x.repeat_interleave(q.shape[1] // k.shape[1], 0) for x in heads[1:]]
        scores = heads[0] @ heads[1].transpose(1, 2)
        scores = scores * (q.shape[-1] ** -0.5 if scale is None else scale)
        if causal:
            hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
            scores = scores.masked_fill(hidden, -torch.inf)
        out[here] = (scores.softmax(-1) @ heads[2]).transpose(0, 1).to(q.dtype)
    return out


@pytest.mark.parametrize("text", blocks("python"))
def test_python_runs(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    layout = rs.PackedLayout.from_lengths([500, 700, 300])
    given = {"rs": rs, "layout": layout, "plan": rs.plan(layout, cp_size=4)}
    given |= {"my_function": my_function, "my_attention": my_attention}
    if "DevicePlan" in text:
        if NO_GPU:
            compile(text, "snippet", "exec")
            pytest.skip(f"no GPU test: {NO_GPU}")
        import torch

        given["cu_seqlens"] = torch.tensor(layout.cu_seqlens, device="cuda")
        given["q"], given["k"], given["v"] = torch.randn(
            (3, layout.num_rows, 16, 64), device="cuda", dtype=torch.bfloat16
        )
    exec(text.replace("examples=200", "examples=5"), given)
    if "test_mine" in given:
        given["test_mine"]()


def commands():
    """[(id, words)] of lines that call ringside."""
    lines = [line for block in blocks("") for line in block.values[0].splitlines()]
    return [
        pytest.param(shlex.split(line)[1:], id=line)
        for line in lines
        if line.startswith("ringside ")
    ]


@pytest.mark.parametrize("words", commands())
def test_commands_are_understood(words):
    import typer

    group = typer.main.get_command(cli.app)
    context = group.make_context("ringside", words[:1], resilient_parsing=True)
    command = group.get_command(context, words[0])
    assert command is not None, f"ringside {words[0]} is no command"
    command.make_context(words[0], words[1:])  # raises where an option is not known


def outputs():
    """[(id, words, text)] of a command that stands alone and what is shown below it."""
    both = [
        pytest.param(shlex.split(command.values[0])[1:], text.values[0], id=command.id)
        for command, text in pairwise(blocks(""))
        if command.values[0].startswith("ringside ") and command.values[0].count("\n") == 1
        if text.values[0].startswith("partition ")
    ]
    assert both, "README shows what ringside explore prints"
    return both


@pytest.mark.parametrize(("words", "shown"), outputs())
def test_what_is_shown_of_a_command_is_what_it_prints(words, shown):
    from typer.testing import CliRunner

    ended = CliRunner().invoke(cli.app, words, env={"COLUMNS": "140"})
    assert ended.exit_code == 0, ended.output
    printed = " ".join(ended.output.split())
    stale = [line for line in shown.splitlines() if " ".join(line.split()) not in printed]
    assert stale == [], "README.md shows what is printed no longer"
