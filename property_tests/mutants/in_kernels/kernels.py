"""One-line faults in what runs on a GPU; see mutants_list.py. ./dev gpu-mutants plants them."""

from mutants_list import Mutant

F32 = "optimized/attention/f32/common.cuh"
SCORES = "reference/attention/score_model.h"  # of the CPU, too
F32_FORWARD = "optimized/attention/f32/forward.cu"
F32_BACKWARD = "optimized/attention/f32/backward.cu"
MMA = "optimized/attention/mma/common.cuh"
MMA_FORWARD = "optimized/attention/mma/forward.cu"
SOFTMAX = "optimized/attention/mma/online_softmax.cuh"
RESULTS = "optimized/attention/mma/results.cuh"
MMA_BACKWARD = "optimized/attention/mma/backward.cu"
MMA_QUERIES = "optimized/attention/mma/backward_queries.cuh"
TILE = "optimized/attention/mma/shared_tile.h"
SEEN = "reference/rows/seen_rows.h"
MOVE = "optimized/exchange/move.cu"
HOME = "optimized/exchange/move_home.cu"
SOFTMAX_MOVES = "optimized/exchange/move_softmax.cu"
STACKS = "optimized/tables/schedules/stack_schedule.cpp"
PARTS = "optimized/program/parts.cpp"
IN_PLACE = "optimized/program/in_place.cpp"
IN_PLACE_ARRAYS = "optimized/program/in_place_arrays.cpp"
UNSEEN = "optimized/tables/unseen_rows.h"

MUTANTS_OF_KERNELS = [
    # --- float32
    Mutant(
        "float32: a last block of keys that is not full is skipped",
        F32_FORWARD,
        "for (int begin = keys.begin; begin < keys.end; begin += S::rows) {",
        "for (int begin = keys.begin; begin + S::rows <= keys.end; begin += S::rows) {",
    ),
    Mutant(
        "float32: the key behind a row's last is seen",
        F32,
        "return seen_begin <= key && key < seen_end;",
        "return seen_begin <= key && key <= seen_end;",
    ),
    Mutant(
        "float32: output is not rescaled when the maximum grows",
        F32_FORWARD,
        "out[i][c][x] *= rescale;",
        "out[i][c][x] *= 1;",
    ),
    Mutant(
        "float32: a later step is merged without its weight",
        F32_FORWARD,
        "0.0f : w.b / softmax.sum[i];",
        "0.0f : 1 / softmax.sum[i];",
    ),
    Mutant(
        "float32: keys are used before all of them are there",
        F32_FORWARD,
        "const bool all_finite = __syncthreads_and(finite);",
        "const bool all_finite = finite;",
    ),
    Mutant(
        "float32: dk and dv take one query head of a group",
        F32_BACKWARD,
        "for (int head = heads.begin; head < heads.end; ++head) {",
        "for (int head = heads.begin; head < heads.begin + 1; ++head) {",
    ),
    Mutant(
        "float32: the gradient of scores is not scaled",
        F32_BACKWARD,
        "ds[i][j] = slope * weight *",
        "ds[i][j] = weight *",
    ),
    Mutant(
        "float32: the first resident head counts as head 0",
        "reference/attention/heads.h",
        "return (first_head + head) / group_size - first_kv_head;",
        "return head / group_size;",
        "TransformerEngine a2a: kv heads of ranks that share a group",
    ),
    Mutant(
        "ALiBi's distance ignores the alignment",
        SCORES,
        "mask.mask.aligned(q, mask.len_q, mask.len_k) - k",
        "int64_t{q} - k",
    ),
    Mutant(
        "dropout is the same for every second head",
        SCORES,
        "options.dropout.keeps(seq, head, q, k)",
        "options.dropout.keeps(seq, head % 2, q, k)",
    ),
    Mutant(
        "float32: dropout forgets to scale what stays",
        SCORES,
        "? weight / static_cast<Real>(1 - options.dropout.p)",
        "? weight",
    ),
    # --- tensor cores
    Mutant(
        "mma: the key behind a row's last is seen",
        MMA,
        "if (unsigned(8 * n + i - begin) >= size)",
        "if (unsigned(8 * n + i - begin) > size)",
    ),
    Mutant(
        "mma: a block that some rows see is taken for one that all see",
        SEEN,
        "all = {last.begin, first.end > last.begin ? first.end : last.begin};",
        "all = some;",
    ),
    Mutant(
        "mma: keys are used before their copy has landed",
        MMA_FORWARD,
        "wait_for_copies();\n    __syncthreads();  // K is there, V is used up",
        "__syncthreads();  // K is there, V is used up",
    ),
    Mutant(
        "mma: the next keys overwrite those in use",
        MMA_FORWARD,
        "__syncthreads();  // V is there, K is used up\n    if (next.valid()) load_k();",
        "if (next.valid()) load_k();\n    __syncthreads();",
    ),
    Mutant(
        "mma: the sum is not rescaled when the maximum grows",
        SOFTMAX,
        "sum[m][half] *= factor;",
        "sum[m][half] *= 1;",
    ),
    Mutant(
        "mma: a row that saw nothing yet is shifted by infinity",
        SOFTMAX,
        "fabsf(top[m][half]) == INFINITY ? 0 : top[m][half] * scale_log2;",
        "top[m][half] * scale_log2;",
    ),
    Mutant(
        "mma: lse is off by the softmax scale",
        RESULTS,
        "softmax.top[i / 2][i % 2] * folded_scale(shape) + logf(sum);",
        "softmax.top[i / 2][i % 2] + logf(sum);",
    ),
    Mutant(
        "mma: one row behind the last is read",
        TILE,
        "const bool valid = row < rows &&",
        "const bool valid = row <= rows &&",
    ),
    Mutant(
        "mma: columns behind the head dimension are read",
        TILE,
        "(first_chunk + chunk) * 8 < dim;",
        "(first_chunk + chunk) * 8 <= dim;",
    ),
    Mutant(
        "mma: dk is not scaled",
        MMA_BACKWARD,
        "shape.softmax_scale, dk);",
        "1, dk);",
    ),
    Mutant(
        "mma: dk and dv leave out the last head of a group",
        "reference/attention/heads.h",
        "const int end = begin + group_size;",
        "const int end = begin + (group_size > 1 ? group_size - 1 : 1);",
    ),
    Mutant(
        "mma: a query's last key gets no gradient",
        MMA_BACKWARD,
        "lane / 4 - seen.x) >= unsigned(seen.y))",
        "lane / 4 - seen.x) + 1 >= unsigned(seen.y))",
    ),
    Mutant(
        "mma: warps that share keys do not wait for each other's scores",
        MMA_BACKWARD,
        "if (C::kSplit > 1) synchronize(1 + warp / C::kSplit, 32 * C::kSplit);",
        "",
    ),
    Mutant(
        "mma: delta has the wrong sign",
        MMA_QUERIES,
        "(grads[0][n][i] - delta[i / 2]);",
        "(grads[0][n][i] + delta[i / 2]);",
    ),
    Mutant(
        "mma: dq by atomics reads the dS of the block in work",
        MMA_BACKWARD,
        "found, base + C::kAtDs + (stage ^ 1) * C::kScoreBytes,",
        "found, base + C::kAtDs + stage * C::kScoreBytes,",
    ),
    Mutant(
        "mma: a row goes on from its output as if it had seen nothing",
        RESULTS,
        "= lse[i] != -INFINITY && threadIdx.x % 4 == 0 ? kWeight : 0;",
        "= 0;",
    ),
    Mutant(
        "mma: a row goes on from its output without the softmax scale",
        RESULTS,
        "= (lse[i] - kPower / kLog2E) * unfolded;",
        "= lse[i] - kPower / kLog2E;",
    ),
    Mutant(
        "mma: in float16 a row goes on with the weight of one key",
        RESULTS,
        "is_same_v<typename C::T, __half> ? OnlineSoftmax<C>::kSlack : 0;",
        "is_same_v<typename C::T, float> ? OnlineSoftmax<C>::kSlack : 0;",
    ),
    Mutant(
        "mma: the row behind an item's last is written",
        SOFTMAX,
        "return 8 * index < left;",
        "return 8 * index <= left;",
    ),
    Mutant(
        "mma: columns are written that a head does not have",
        RESULTS,
        "if (dim == C::kV) {",
        "if (dim <= C::kV) {",
    ),
    Mutant(
        "mma: tiles of accumulators overlap from head to head",
        "optimized/tables/accumulator_tiles.h",
        "(row / kTileSide * heads + head) * kTileSide * dim",
        "(row / kTileSide * heads + head) * dim",
    ),
    Mutant(
        "a launch into gradients that are not empty overwrites them",
        "optimized/program/backward.cpp",
        "tables.starts ? Accumulate::start : Accumulate::merge,",
        "Accumulate::start,",
    ),
    Mutant(
        "gradients that come home late are forgotten",
        STACKS,
        "      late_ = true;\n",
        "",
    ),
    Mutant(
        "a launch after the first starts its results again",
        STACKS,
        "    starts_ = false;\n",
        "",
    ),
    Mutant(
        "mma: rows that are not there have a largest score",
        SOFTMAX,
        "if (16 * m + 8 * half < rows) highest",
        "if (rows > -999) highest",
    ),
    Mutant(
        "float32: max_logit by resident head",
        F32_FORWARD,
        "a.max_logit + model.head",
        "a.max_logit + head",
    ),
    # --- exchanges, and what the executor does around the kernels
    Mutant(
        "arrays are read as if heads were dense",
        HOME,
        "move_pack<N>(x + offset_of(from.matrix, global, head) + d, place);",
        "move_pack<N>(x + global * from.matrix.row_stride + head * from.dim + d, place);",
    ),
    Mutant(
        "columns that pad a head dimension are not emptied",
        HOME,
        "for (int i = 0; i < N; ++i) assign(place[i], 0);",
        "for (int i = 0; i < N; ++i) assign(place[i], 1);",
    ),
    Mutant(
        "partial results that come home are merged with each other's weights",
        MOVE,
        "merge_weights(to.lse[target], from.lse[source])",
        "merge_weights(from.lse[source], to.lse[target])",
    ),
    Mutant(
        "gradients that come home overwrite",
        MOVE,
        "*places[i] = combine(values[i], before[i]);",
        "*places[i] = values[i];",
    ),
    Mutant(
        "thread blocks that share a block of cells all take the same part of it",
        MOVE,
        "const unsigned begin = blockIdx.y * kThreads * kAtOnce + threadIdx.x;",
        "const unsigned begin = threadIdx.x;",
    ),
    Mutant(
        "a sink takes nothing from the output",
        HOME,
        "sinks.heads, dim, in_tiles)] *= w.a;",
        "sinks.heads, dim, in_tiles)] *= 1;",
    ),
    Mutant(
        "delta is that of the first row of a block",
        SOFTMAX_MOVES,
        "to.delta.of(own.row, own.head) =",
        "to.delta.of(all.first_row, own.head) =",
    ),
    Mutant(
        "delta and lse of heads behind the first sixteen are the first ones'",
        SOFTMAX_MOVES,
        "first_head(blockIdx.y * shape.heads)",
        "first_head(0)",
    ),
    Mutant(
        "delta of a row's heads lie one upon the other",
        SOFTMAX_MOVES,
        "return (cell.head - first_head) * (rows + 1) + cell.row - first_row;",
        "return cell.row - first_row;",
    ),
    Mutant(
        "delta leaves out what a thread reads after its first pack",
        SOFTMAX_MOVES,
        "d < out.dim; d += Team * N) {",
        "d < Team * N; d += Team * N) {",
    ),
    Mutant(
        "in place: lse of rows that see nothing is what lay there",
        SOFTMAX_MOVES,
        "if ((hidden >> lane & 1) == 0) return;",
        "if (first >= 0) return;",
    ),
    Mutant(
        "in place: results of rows that see nothing are what lay there",
        SOFTMAX_MOVES,
        "  clear_rows<T>(out, first, hidden);\n",
        "",
    ),
    Mutant(
        "in place: gradients of queries that see nothing are what lay there",
        SOFTMAX_MOVES,
        "    return clear_rows_of_any_type(x.of_queries, first, hidden);",
        "    return;",
    ),
    Mutant(
        "in place: gradients of values that nobody sees are what lay there",
        SOFTMAX_MOVES,
        "for (const GlobalArray& array : x.of_keys) clear_rows_of_any_type(array, first, hidden);",
        "clear_rows_of_any_type(x.of_keys[0], first, hidden);",
    ),
    Mutant(
        "in place: of keys, the first rows are looked at by each block",
        SOFTMAX_MOVES,
        "  block -= blocks_of_queries(x);\n",
        "  block = 0;\n",
    ),
    Mutant(
        "in place: sums that several add to begin with anything",
        SOFTMAX_MOVES,
        "  for (const Cleared::Zeros& zeros : cleared.zeros) of_clears += blocks_of(zeros);\n",
        "",
    ),
    Mutant(
        "in place: the last words of what is to be 0 are not",
        SOFTMAX_MOVES,
        "if (threadIdx.x < (end - whole) / sizeof(uint32_t))",
        "if (threadIdx.x < (end - whole) / sizeof(uint4))",
    ),
    Mutant(
        "in place: without queries, what is to be 0 beside is not",
        SOFTMAX_MOVES,
        "  if (grid.x == 0) return;\n",
        "  if (of_sums == 0) return;\n",
    ),
    Mutant(
        "in place: words of whose first keys have stored hold anything at first",
        IN_PLACE,
        "parts_.first_in_place, parts_.bytes_of_first_words()};",
        "parts_.first_in_place, 0};",
    ),
    Mutant(
        "in place: sums of rows that see nothing are what lay there",
        IN_PLACE,
        "all.of_queries = summed_ ? dq_.array() : call_.dq;",
        "all.of_queries = summed_ ? move::GlobalArray() : call_.dq;",
    ),
    Mutant(
        "in place: lse is that of another head",
        "optimized/device/types.h",
        "return data[row * row_stride + head * head_stride];",
        "return data[row * row_stride + head % 1 * head_stride];",
    ),
    Mutant(
        "mma: a block of threads leaves out the items after its first",
        MMA,
        "index < *work.num_items; index += gridDim.x) {",
        "index < min(*work.num_items, int(gridDim.x)); index += gridDim.x) {",
    ),
    Mutant(
        "float32: a block of threads leaves out the items after its first",
        F32,
        "at < count; at += gridDim.x) {",
        "at < min(count, int64_t{gridDim.x}); at += gridDim.x) {",
    ),
    Mutant(
        "rows of nobody keep what lay there",
        HOME,
        "    move_pack<N>(y.of, place);\n",
        "    if (row != kNobody) move_pack<N>(y.of, place);\n",
    ),
    Mutant(
        "in place: rows of out that see nothing keep what lay there",
        UNSEEN,
        "return mask.visible(position, q.tokens(seq), k.tokens(seq)).size() == 0;",
        "return position >= q.tokens(seq);",
    ),
    Mutant(
        "in place: rows of dk that nobody sees keep what lay there",
        UNSEEN,
        "return mask.seeing(position, q.tokens(seq), k.tokens(seq)).size() == 0;",
        "return mask.seeing(position, q.tokens(seq), k.tokens(seq)).size() < 0;",
    ),
    Mutant(
        "poison: rows of nobody lie in front of the first rank",
        "optimized/tables/move_tables.cpp",
        "RankStack::Matrix matrix{stack.cells, 0, {",
        "RankStack::Matrix matrix{stack.cells, gap, {",
    ),
    Mutant(
        "in place: dq of short documents is added to what lay there",
        MMA_BACKWARD,
        "kAlone ? Put::store_final : Put::add",
        "Put::add",
    ),
    Mutant(
        "in place: dq of documents of several items of keys is that of one of them",
        "optimized/tables/build_work_list.cpp",
        "if (!sequences.insert(item.own.seq).second) return false;",
        "sequences.insert(item.own.seq);",
    ),
    Mutant(
        "in place: half of what is summed is not emptied before",
        IN_PLACE,
        "zeros() const { return {matrix.data, bytes}; }",
        "zeros() const { return {matrix.data, bytes / 8 * 4}; }",
    ),
    Mutant(
        "gathered rows come from home in the order of ranks",
        MOVE,
        "int from = CellBlock::row(b.from_map, map, i)",
        "int from = i",
    ),
    Mutant(
        "results that have come home are not emptied for the next step",
        STACKS,
        "++at_q_);\n        start_results(step);",
        "++at_q_);",
    ),
    Mutant(
        "lse does not travel with its queries",
        "optimized/program/walk.cpp",
        "    if (parts_.is_stacked) poison(to.data, static_cast<int64_t>(to.bytes()));\n",
        "    if (array == 2) continue;\n",
    ),
    Mutant(
        "every rank's heads are numbered from 0",
        PARTS,
        "s.first_head = q_heads.begin, s.first_kv_head",
        "s.first_head = 0, s.first_kv_head",
    ),
    Mutant(
        "float32: rows that begin anywhere are loaded four elements at a time",
        "optimized/attention/f32/common.cuh",
        "return together % 4 == 0 && reinterpret_cast",
        "return together >= 0 && reinterpret_cast",
    ),
    Mutant(
        "a family that is asked for by name is the table's first",
        "optimized/program/choose_family.cpp",
        "return all.subspan(i);",
        "return all;",
    ),
    Mutant(
        "sums that a launch goes on from are not cleared before it",
        "optimized/program/parts.cpp",
        "if (!operations[j].starts) break;",
        "if (false) break;",
    ),
    Mutant(
        "strides of an only head are asked",
        IN_PLACE_ARRAYS,
        "  if (x.heads <= 1 || matrix.rows == 0) matrix.head_stride",
        "  if (matrix.rows == 0) matrix.head_stride",
    ),
    Mutant(
        "strides of heads of nothing are asked",
        IN_PLACE_ARRAYS,
        "  if (x.heads <= 1 || matrix.rows == 0) matrix.head_stride",
        "  if (x.heads <= 1) matrix.head_stride",
    ),
    Mutant(
        "strides of an only row are asked",
        IN_PLACE_ARRAYS,
        "  if (matrix.rows <= 1) matrix.row_stride",
        "  if (false) matrix.row_stride",
    ),
    Mutant(
        "arrays that a family does not take are launched",
        IN_PLACE_ARRAYS,
        "  if (family.takes_array != nullptr)",
        "  if (false)",
    ),
    Mutant(
        "a family is asked for arrays of more rows than it takes",
        "optimized/attention/families.cpp",
        "if (rows <= family.most_rows && family",
        "if (rows >= 0 && family",
    ),
    Mutant(
        "a grid that stays leaves no multiprocessor to others",
        "optimized/device/processors.cpp",
        "std::max(1, processors_of_device() - sm_margin);",
        "std::max(sm_margin * 0, processors_of_device());",
    ),
]
