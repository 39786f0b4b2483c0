"""Ringside under the protocol of check_context_parallel."""


class Ranks:
    """A context-parallel attention: ringside's own, rank by rank."""

    name = "Ranks"

    def __call__(self, qs, ks, vs, *, plan, **options):
        whole = plan.unshard(qs), plan.unshard(ks, side="k"), plan.unshard(vs, side="k")
        out, lse = plan.attention(*whole, **options)
        self.whole = (*whole, out, lse)
        ranks = range(plan.cp_size)
        return [(plan.shard(out, r), plan.shard(lse.T, r).T) for r in ranks]

    def backward(self, douts, qs, ks, vs, outs, lses, *, plan, **options):
        operands = [plan.unshard(douts), plan.unshard(qs), plan.unshard(ks, side="k")]
        operands += [plan.unshard(vs, side="k"), plan.unshard(outs)]
        lse = plan.unshard([x.T for x in lses]).T
        dq, dk, dv, *dsink = plan.attention_backward(*operands, lse, **options)
        share = [x / plan.cp_size for x in dsink]
        return [
            (plan.shard(dq, r), plan.shard(dk, r, side="k"), plan.shard(dv, r, side="k"), *share)
            for r in range(plan.cp_size)
        ]
