"""Faults in pictures, and in what they ask of a plan: colours, places, letters, what is proved."""

from mutants_list import Mutant

PICTURES = "bindings/ringside/_pictures/"
RASTER, WORK = PICTURES + "raster.py", PICTURES + "work.py"
TIMELINE, COLOURS = PICTURES + "timeline.py", PICTURES + "colours.py"
MASK_CORE, SEGMENTS = "bindings/core/mask.cpp", "bindings/core/segments.cpp"
MUTANTS_OF_PICTURES = [
    Mutant(
        "a pixel is as light as its rank is high",
        RASTER,
        'where(there, tile["step"]',
        'where(there, tile["rank"]',
    ),
    Mutant(
        "what nobody computes looks as if it were hidden",
        RASTER,
        "rank = np.where(visible, MISSED, NOBODY)",
        "rank = np.full(visible.shape, NOBODY)",
    ),
    Mutant(
        "padding belongs to the rank that has its row",
        RASTER,
        "np.where(tokens_of(layout, shown.rows)[2], owner[shown.rows], PADDING)",
        "owner[shown.rows]",
    ),
    Mutant(
        "work by owner counts one head of several",
        WORK,
        "pairs.astype(np.int64) * (end - begin)",
        "pairs.astype(np.int64)",
    ),
    Mutant(
        "an interval begins with the strided key before it",
        WORK,
        '-(-(edge.astype(np.int64) - tile["k_pos"]) // tile["k_stride"])',
        '(edge.astype(np.int64) - tile["k_pos"]) // tile["k_stride"]',
    ),
    Mutant(
        "steps begin when the average rank has ended",
        TIMELINE,
        "work.max(axis=0, initial=0)",
        "work.mean(axis=0)",
    ),
    Mutant(
        "what travels counts as work of the ideal",
        TIMELINE,
        'work = sum(event.end - event.begin for event in events if event.kind == "work")',
        "work = sum(event.end - event.begin for event in events)",
    ),
    Mutant(
        "numbers are in the ink that reads worse",
        COLOURS,
        "if contrast(black",
        "if not contrast(black",
    ),
    Mutant(
        "letters are smaller",
        PICTURES + "figure.py",
        "SMALL, NORMAL = 8, 10",
        "SMALL, NORMAL = 7, 10",
    ),
    Mutant(
        "later steps are darker",
        COLOURS,
        "colours + (1 - colours) * white[..., None]",
        "colours * (1 - white[..., None])",
    ),
    Mutant(
        "all heads of a row are the last rank's",
        PICTURES + "layout.py",
        "found[slice(*step.heads), rows] = rank",
        "found[:, rows] = rank",
    ),
    Mutant(
        "the ring of a mark lies across the diagonal",
        PICTURES + "mask.py",
        "[mark.key + 0.5],\n",
        "[mark.row + 0.5],\n",
    ),
    Mutant(
        "a picture says proved without asking",
        PICTURES + "display.py",
        "pairs = plan.verify().pairs",
        "pairs = int(plan.cost().pairs.sum())",
    ),
    Mutant(
        "keys of several ranks are the first one's",
        SEGMENTS,
        "owners.size() == 1 ? std::optional(owners[0])",
        "!owners.empty() ? std::optional(owners[0])",
    ),
    Mutant(
        "all queries have the length of the first",
        MASK_CORE,
        "values.size() == 1 ? values[0] : values[i]",
        "values[0 * i]",
    ),
    Mutant(
        "every tile that is wrong is the first",
        "reference/verify/verify.cpp",
        "const At at{rank, i, static_cast<int>(t), error.at.row, error.at.key};",
        "const At at{rank, i, 0, error.at.row, error.at.key};",
    ),
    Mutant(
        "a key that is missed is counted from its document",
        "reference/verify/verify_coverage.cpp",
        ".key = problem_.layout_k.row_begin(seq_) + k}",
        ".key = k}",
    ),
    Mutant(
        "a message that is wrong is of the step before",
        "reference/verify/verify_exchanges.cpp",
        "return {verb, {rank, step}, m};",
        "return {verb, {rank, step - 1}, m};",
    ),
]
