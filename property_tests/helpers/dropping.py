"""An implementation that leaves out one tile."""


def names_of(plan):
    """(step, rank, index) of every tile."""
    return [
        (step, rank, index)
        for step in range(plan.num_steps)
        for rank in range(plan.cp_size)
        for index in range(len(plan.steps(rank)[step].tiles))
    ]


def tile_of(plan, name):
    step, rank, index = name
    return plan.steps(rank)[step].tiles[index]


class Dropping:
    """The reference, but for one tile of one rank in one step, which it does not compute."""

    def __init__(self, step, rank, tile):
        self.lost = step, rank, tile

    def without(self, plan):
        kept = {n for n in names_of(plan) if (*n[:2], tile_of(plan, n)) != self.lost}
        return plan._part(plan.num_steps, kept)

    def forward(self, plan, *arrays, **options):
        return self.without(plan).attention(*arrays, **options)

    def backward(self, plan, *arrays, **options):
        return self.without(plan).attention_backward(*arrays, **options)
