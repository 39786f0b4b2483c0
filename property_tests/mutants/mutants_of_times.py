"""Faults in what time models tell: who waits for whom, what exchanges take, what tables say."""

from mutants_list import Mutant

WALK = "bindings/ringside/_time/walk.py"
LOADS = "bindings/ringside/_time/loads.py"
MODEL = "bindings/ringside/_time/model.py"
TIMELINE = "bindings/ringside/_time/timeline.py"
MUTANTS_OF_TIMES = [
    Mutant(
        "a hop leaves before its sender has what it sends",
        WALK,
        "np.where(comes, np.maximum(ready, ready[source]), np.inf)",
        "np.where(comes, ready, np.inf)",
    ),
    Mutant(
        "keys land where tiles still read",
        WALK,
        "incoming = state.post(loads.before, i + 1, loads.steps, read)",
        "incoming = state.post(loads.before, i + 1, loads.steps, 0 * read)",
    ),
    Mutant(
        "tiles begin before their keys are there",
        WALK,
        "begin = np.where(arrived.there, np.maximum(begin, arrived.end), begin)",
        "begin = np.where(arrived.there, np.maximum(begin, arrived.begin), begin)",
    ),
    Mutant(
        "gradients are added before they came",
        WALK,
        "begin = np.where(adds, np.maximum(self.device, arrived.end), self.device)",
        "begin = self.device",
    ),
    Mutant(
        "an exchange takes nothing from the tiles it travels under",
        WALK,
        "end = np.where(exchange.there, end + within / (1 - share) - within, end)",
        "end = np.where(exchange.there, end, end)",
    ),
    Mutant(
        "an exchange is forgotten once the tiles of others have waited for it",
        WALK,
        "if (x.end > self.device).any()]",
        "if (x.end > begin).any()]",
    ),
    Mutant(
        "a group ends each for itself",
        WALK,
        "return _Exchange(begins[of], begins[of] + lasts[of], there)",
        "return _Exchange(begins[of], begins[of] + us, there)",
    ),
    Mutant(
        "without overlap gradients travel under the next tiles",
        WALK,
        "state.device = np.maximum(state.device, state.link)",
        "pass",
    ),
    Mutant(
        "a launch is paid where nothing is launched",
        LOADS,
        "rates.launch * (cost.blocks > 0)",
        "rates.launch",
    ),
    Mutant(
        "queries of a backward pass come with its last step",
        LOADS,
        "moved[:, -1] += queries",
        "moved[:, 0] += queries",
    ),
    Mutant(
        "a hop between hosts takes a link inside one",
        LOADS,
        "(ranks // near == source // near) * 1.0",
        "(ranks // near == ranks // near) * 1.0",
    ),
    Mutant(
        "keys of a backward ring come from the neighbour",
        LOADS,
        'offsets.append((step if direction == "backward" else 1) * self.shape.group)',
        "offsets.append(self.shape.group)",
    ),
    Mutant(
        "a table begins at no time",
        MODEL,
        "took = np.interp(x, self.bytes, self.us)",
        "took = np.interp(x, (0.0, *self.bytes), (0.0, *self.us))",
    ),
    Mutant(
        "a table that stands still is taken",
        "bindings/ringside/_time/model_json.py",
        "any(a >= b for a, b in pairwise(column))",
        "any(a > b for a, b in pairwise(column))",
    ),
    Mutant(
        "what tiles hide is counted as exposed",
        TIMELINE,
        "hidden[rank] -= _worked(begin, end, self.exchange.begin[rank]).sum()",
        "hidden[rank] -= _worked(begin, end, self.exchange.end[rank]).sum()",
    ),
    Mutant(
        "gradients that arrive are not told from keys",
        "reference/schedule/schedule_cost.cpp",
        "cost_.gradient_bytes_received(of.rank, step) += received;",
        "cost_.gradient_bytes_received(of.rank, step) += 0;",
    ),
]
