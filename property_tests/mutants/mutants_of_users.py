"""Faults in what users bring and ask: lengths, owners, metadata of a peer, a choice."""

from mutants_list import Mutant

TEXT = "bindings/ringside/lengths/_text.py"
PARTITIONS = "bindings/ringside/_plan/partitions.py"
STEPS = "bindings/ringside/thd/_step_pairs.py"
CHECK = "bindings/ringside/thd/_check_steps.py"
RANGES = "bindings/ringside/_plan/ranges.py"
CHOICES = "bindings/ringside/cli/choices.py"
KINDS = "bindings/ringside/_arguments/kinds.py"
POSITIONS = "bindings/ringside/_arguments/flash_positional.py"
OPERATOR = "bindings/ringside/_torch_operator.py"
PAIRS = "bindings/ringside/_attention/differentiable.py"
STAND_IN = "bindings/ringside/testing/stand_ins/flash_attn.py"
METHODS = "bindings/ringside/_plan/own_methods.py"
DRAWN = "bindings/ringside/testing/strategies.py"
DEVICE = "bindings/ringside/_arrays/cuda.py"
GRADIENTS = "bindings/ringside/_arguments/gradients.py"
MOVED = "bindings/ringside/_arguments/torch_rows.py"
HALVES = "bindings/ringside/_attention/torch_halves.py"
TORCH = "bindings/ringside/torch.py"
MUTANTS_OF_USERS = [
    Mutant(
        "rows that move leave torch's gradients behind",
        GRADIENTS,
        "            if not asks_for_gradient(",
        "            if True or asks_for_gradient(",
    ),
    Mutant(
        "a call without a gradient takes tensors that require one, without a word",
        GRADIENTS,
        "            if asks_for_gradient((*args, *kwargs.values())):",
        "            if False:",
    ),
    Mutant(
        "what padding's gradient holds reaches the first row",
        MOVED,
        "accumulate(ctx.rows, initial=1)",
        "accumulate(ctx.rows, initial=0)",
    ),
    Mutant(
        "the gradient of a gradient of attention is nothing",
        HALVES,
        "tied = iter(_Once.apply(len(gradients), *gradients, *origins))",
        "tied = iter(gradients)",
    ),
    Mutant(
        "a sink that requires a gradient gets none",
        HALVES,
        "        return of_options, lambda x:",
        "        return None, lambda x:",
    ),
    Mutant(
        "kernels that were compiled to be checked are run without a word",
        DEVICE,
        "if cuda_core().QUICK_KERNELS:",
        "if False:",
    ),
    Mutant(
        "a method from a file of its own says that it is a function",
        METHODS,
        'f"{cls.__qualname__}.{name}"',
        "name",
    ),
    Mutant(
        "below what answers in kind, the method says that it is a function",
        METHODS,
        'method = getattr(method, "__wrapped__", None)',
        "break",
    ),
    Mutant(
        "several columns without a header are one list",
        TEXT,
        "if len(words) > 1 and len(lines) > 1:",
        "if False:",
    ),
    Mutant("a column of offsets is read as lengths", TEXT, " or named == OFFSETS:", ":"),
    Mutant("true counts as a length of one", TEXT, "type(found) is not int", "found != int(found)"),
    Mutant(
        "a run of rows goes on into the next document",
        PARTITIONS,
        "cuts = np.union1d(changes, layout.cu_seqlens_padded).tolist()",
        "cuts = sorted({0, *changes.tolist(), layout.num_rows})",
    ),
    Mutant(
        "an owner beyond the ranks is taken for the last",
        PARTITIONS,
        "if len(owners) and not 0 <= owners.min() <= owners.max() < cp_size:",
        "owners = owners.clip(0, cp_size - 1)\n    if False:",
    ),
    Mutant(
        "a peer's causal mask begins top left, whatever it says",
        STEPS,
        '"padding_causal_bottom_right": (True, True)',
        '"padding_causal_bottom_right": (True, False)',
    ),
    Mutant(
        "a bound of a peer's window is left out",
        STEPS,
        "self.k_row[b] + begin, self.k_row[b] + np.maximum(begin, end)",
        "self.k_row[b] + 0 * begin, self.k_row[b] + np.maximum(begin, end)",
    ),
    Mutant("a pair meant twice is right", CHECK, "wrong[k_rows] += 1", "wrong[k_rows] = 0"),
    Mutant(
        "keys of other lengths are looked for where the queries lie",
        CHECK,
        "first = int(self.keys.cu_seqlens_padded[sequence])",
        "first = int(self.layout.cu_seqlens_padded[sequence])",
    ),
    Mutant(
        "slices of inverse causal masks see everything",
        RANGES,
        "INV_CAUSAL: Mask.sliding_window(0, -1)",
        "INV_CAUSAL: Mask.full()",
    ),
    Mutant(
        "of a ring the busiest rank counts, not that of each step",
        CHOICES,
        "cost.blocks.max(axis=0).sum() if comm in PASS_ON else work",
        "work",
    ),
    Mutant(
        "what moves least is recommended, however slow",
        CHOICES,
        "c.pace <= CLOSE * fastest.pace",
        "c.pace <= 9 * fastest.pace",
    ),
    Mutant(
        "lse is rounded to the type of q",
        KINDS,
        "return torch.float64 if dtype == torch.float64 else torch.float32",
        "return dtype",
    ),
    Mutant(
        "bfloat16 and int16 tensors look alike to copy_rows",
        KINDS,
        "if not sums and getattr",
        "if False and getattr",
    ),
    Mutant(
        "results of a tensor of bfloat16 stay float64",
        KINDS,
        "made.to(dtype) if made.is_floating_point() and dtype is not None else made",
        "made",
    ),
    Mutant(
        "positions of FlashAttention 3 are read as those of 2",
        POSITIONS,
        "        return THREE\n",
        "        return TWO\n",
    ),
    Mutant(
        "the operator takes any lengths of a plan",
        PAIRS,
        "    if version != plan._version:\n",
        "    if False:\n",
    ),
    Mutant(
        "a compiled function keeps the gradient of the sink from the caller",
        OPERATOR,
        "return (dq, dk, dv, dsink[0] if dsink else None, *none)",
        "return (dq, dk, dv, None, *none)",
    ),
    Mutant(
        "the stand-in's rows that see nothing have lse -inf",
        STAND_IN,
        "lse = torch.where(lse == -torch.inf, torch.inf, lse)",
        "pass",
    ),
    Mutant(
        "the stand-in aligns masks top left",
        STAND_IN,
        'align="bottom_right"',
        'align="top_left"',
    ),
    Mutant(
        "ranks go on waiting for one that raised",
        "bindings/ringside/testing/processes.py",
        "                self.close()  # whoever waits for the one that failed waits for good\n",
        "                pass\n",
    ),
    Mutant(
        "who lost a rank is named in its place",
        "bindings/ringside/testing/processes.py",
        "if failure is not None and not OF_A_LOST_PEER.search(str(failure)):",
        "if failure is not None:",
    ),
    Mutant(
        "an adapter deals rows to ranks in another order than its package",
        "property_tests/peers/torch/adapter.py",
        'partition="zigzag"',
        'partition="contiguous"',
    ),
    Mutant(
        "the pool gives one rank's answer to another",
        "bindings/ringside/testing/processes.py",
        "return [answers[rank] for rank in range(self.size)]",
        "return [answers[self.size - 1 - rank] for rank in range(self.size)]",
    ),
    Mutant(
        "the pool sends keys where values belong",
        "bindings/ringside/testing/processes.py",
        '        given = zip(qs, ks, vs, strict=True)\n        return self._run(plan, [("forward"',
        '        given = zip(qs, vs, ks, strict=True)\n        return self._run(plan, [("forward"',
    ),
    Mutant(
        "a peer's wrong number counts as agreement",
        "bindings/ringside/testing/peers/trial.py",
        "        self.hunted = fault\n        raise failure",
        "        self.hunted = fault",
    ),
    Mutant(
        "what a run demands of a peer is forgotten",
        "bindings/ringside/testing/peers/trial.py",
        "dataclasses.replace(self.feature.demands, **self.settings.demands)",
        "self.feature.demands",
    ),
    Mutant(
        "frames that JAX hides hide whose an error is",
        "bindings/ringside/testing/peers/rank.py",
        '"jax_traceback_filtering", "off"',
        '"jax_traceback_filtering", "auto"',
    ),
    Mutant(
        "what an adapter hands to a package to be traced is the package's",
        "bindings/ringside/testing/peers/rank.py",
        'bool(others) and "site-packages" in others[-1].parts',
        'any("site-packages" in file.parts for file in others)',
    ),
    Mutant(
        "a script draws other numbers than the case has",
        "bindings/ringside/testing/peers/part_drawn.py",
        "last_bit = np.frexp(x)[1] - 8",
        "last_bit = np.frexp(x)[1] - 9",
    ),
    Mutant(
        "scales that are asked for are not what is drawn",
        "bindings/ringside/testing/peers/drawing.py",
        '("cp", "masks", "heads", "scales")',
        '("cp", "masks", "heads")',
    ),
    Mutant(
        "a peer that is absent today loses what was seen of it",
        "bindings/ringside/testing/peers/table.py",
        " or subject(row) not in seen",
        " or True",
    ),
    Mutant(
        "what was seen on a GPU takes the place of what was seen on a CPU",
        "bindings/ringside/testing/peers/table.py",
        'return row["package"], row["device"]',
        'return row["package"], ""',
    ),
    Mutant(
        "torch's kernels get windows the wrong way round",
        "bindings/ringside/testing/peers/part_torchs_kernels.py",
        '"window_size_left": left, "window_size_right": 0 if causal else right',
        '"window_size_left": 0 if causal else right, "window_size_right": left',
    ),
    Mutant(
        "Transformer Engine's second halves are merged into first ones",
        "property_tests/peers/transformer_engine/stand_in.py",
        "rows = halves(cu_seqlens)[1] if second_half else",
        "rows = halves(cu_seqlens)[0] if second_half else",
    ),
    Mutant(
        "sequences first is taken for batch first",
        "bindings/ringside/testing/dense.py",
        'x = x if self.qkv_format == "bshd" else x.swapaxes(0, 1)',
        "x = x",
    ),
    Mutant(
        "drawn pieces lie in a shard in the order of their rows",
        DRAWN,
        "shard.insert(len(shard) - place % (len(shard) + 1), piece)",
        "shard.append(piece)",
    ),
    Mutant(
        "a drawn stripe is cut once",
        DRAWN,
        "for _ in range(min(3, count - 1))} | {0, count}",
        "for _ in range(min(1, count - 1))} | {0, count}",
    ),
    Mutant(
        "a table longer than a table forgets how often",
        DRAWN,
        "quarters = [max(1, round(4 * size / sum(sizes))) for size in sizes]",
        "quarters = [1 if size == max(sizes) else 20 for size in sizes]",
    ),
    Mutant(
        "no drawn case has segments of its own",
        DRAWN,
        "NAMES_OR_OWN = _table((1, rs.PARTITIONS), (4, [None]))",
        "NAMES_OR_OWN = NAMES",
    ),
    Mutant(
        "packs without a document are drawn more often than others",
        DRAWN,
        "for n in (1, 0, 2, 3, 4)",
        "for n in (0, 1, 2, 3, 4)",
    ),
    Mutant(
        "a gradient by an option that is a constant is dropped",
        "bindings/ringside/_arguments/gradients.py",
        "if (is_list(x) or name not in tensors) and asks_for_gradient(x):",
        "if False:",
    ),
    Mutant(
        "a sink that requires a gradient goes unwatched beside constants",
        TORCH,
        "        if sink is not None and sink.requires_grad:",
        "        if False:",
    ),
    Mutant(
        "keys that require a gradient go unwatched beside constants",
        TORCH,
        "or k.requires_grad ",
        "",
    ),
    Mutant(
        "a derivative in forward mode is dropped where gradients are off",
        TORCH,
        '"_current_level", 0) >= 0 or',
        '"_current_level", 0) > 0 or',
    ),
    Mutant(
        "torch.func's transforms go unwatched",
        TORCH,
        " or _transforms_are_active()",
        "",
    ),
]
