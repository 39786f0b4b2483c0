"""Plans that no partition makes, of those that one makes."""

import json

import ringside as rs


def in_half_steps(plan: rs.Plan) -> rs.Plan:
    """Each step's tiles in two steps, with nothing exchanged between them.

    Steps of the same buffers then follow each other, as in no plan of ringside.plan.
    """
    data = json.loads(plan.to_json())
    tiles, steps, messages = (
        data["tables"][name]["rows"] for name in ("tiles", "steps", "messages")
    )
    lists = max((tile[0] for tile in tiles), default=0)
    seen: dict[int, int] = {}
    for tile in tiles:  # every second one of a list goes to a list of its own
        seen[tile[0]] = seen.get(tile[0], 0) + 1
        tile[0] += lists * (seen[tile[0]] % 2 == 0)
    tiles.sort(key=lambda tile: tile[0])
    columns = {name: i for i, name in enumerate(data["tables"]["steps"]["columns"])}
    step, kind, of = columns["step"], columns["kind"], columns["tile_list"]
    halves = []
    for row in steps:
        second = row[of] + lists if seen.get(row[of], 0) > 1 else 0
        for half, tile_list in enumerate((row[of], second)):
            new = list(row)
            new[step], new[of] = 2 * row[step] + half, tile_list
            if half:
                new[kind] = 0  # no exchange
            halves.append(new)
    steps[:] = halves
    at = data["tables"]["messages"]["columns"].index("step")
    for message in messages:
        message[at] *= 2
    # Lists are numbered without gaps.
    numbers = {old: new for new, old in enumerate(sorted({tile[0] for tile in tiles}), 1)}
    for tile in tiles:
        tile[0] = numbers[tile[0]]
    for row in steps:
        row[of] = numbers.get(row[of], 0)
    return rs.Plan.from_json(json.dumps(data))
