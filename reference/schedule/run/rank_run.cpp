#include <algorithm>
#include <utility>

#include "reference/attention/partial.h"
#include "reference/execute/execute_items.h"
#include "reference/schedule/run/run_schedule.h"
#include "reference/support/errors.h"

namespace ringside {
namespace {

constexpr int kRowsOfItem = 256;  // as in execute.cpp: how products are cut decides their bits

int index(Payload payload) { return static_cast<int>(payload); }

int64_t pairs_at_most(const std::vector<Tile>& tiles, int heads) {
  int64_t pairs = 0;
  for (const Tile& tile : tiles) pairs += int64_t{tile.q.len} * tile.k.len * heads;
  return pairs;
}

}  // namespace

RankRun::RankRun(const Plan& plan, const Schedule& schedule, const AttentionOptions& options,
                 std::vector<TensorView> queries, std::vector<TensorView> keys)
    : plan_(plan),
      schedule_(schedule),
      options_(options),
      caller_{std::move(queries), std::move(keys)},
      max_logit_(plan.problem.num_heads, kNegInf) {
  for (const TensorView& x : caller_[0]) dims_[index(Payload::queries)].push_back(x.dim);
  for (const TensorView& x : caller_[1]) dims_[index(Payload::keys)].push_back(x.dim);
  const int dim_qk = caller_[1][0].dim, dim_v = caller_[1][1].dim;
  dims_[index(Payload::results)] = {dim_v, 1};
  dims_[index(Payload::query_gradients)] = {dim_qk};
  dims_[index(Payload::key_gradients)] = {dim_qk, dim_v};
  for (const Area& area : schedule.areas) {
    auto& arrays = memory_.emplace_back();
    for (const int dim : dims_[index(area.payload)]) arrays.emplace_back(area.cells * dim, kPoison);
  }
}

const double* RankRun::cell(int buffer, int array, int row, int head) const {
  const ScheduledBuffer& b = schedule_.buffers[buffer];
  if (b.area == kCaller)
    return caller_[b.payload == Payload::keys ? 1 : 0][array].at(row, head - b.heads.begin);
  const int64_t index_of_cell = b.cell + int64_t{row} * b.heads.size() + head - b.heads.begin;
  return memory_[b.area][array].data() + index_of_cell * dims_[index(b.payload)][array];
}
std::vector<double> RankRun::kept() const {
  std::vector<double> all;
  for (size_t area = 0; area < memory_.size(); ++area)
    for (const auto& array : memory_[area])
      if (schedule_.areas[area].kept) all.insert(all.end(), array.begin(), array.end());
  return all;
}

void RankRun::set_kept(std::span<const double> kept) {
  for (size_t area = 0; area < memory_.size(); ++area)
    for (auto& array : memory_[area]) {
      if (!schedule_.areas[area].kept) continue;
      require(kept.size() >= array.size(), "kept keys end before what the schedule reads");
      std::ranges::copy(kept.first(array.size()), array.begin());
      kept = kept.subspan(array.size());
    }
  require(kept.empty(), "kept keys go on behind what the schedule reads");
}

double* RankRun::cell(int buffer, int array, int row, int head) {
  return const_cast<double*>(std::as_const(*this).cell(buffer, array, row, head));
}

// visit(array, row of the block, head, dim), rows and heads of one array after the other.
template <typename Visit>
void RankRun::for_each_cell(const Block& block, Visit visit) const {
  const auto& dims = dims_[index(schedule_.buffers[block.buffer].payload)];
  for (int array = 0; array < static_cast<int>(dims.size()); ++array)
    for (int i = 0; i < block.rows; ++i) {
      check_interrupt(int64_t{block.heads.size()} * dims[array]);
      for (int head = block.heads.begin; head < block.heads.end; ++head)
        visit(array, i, head, dims[array]);
    }
}

std::vector<double> RankRun::packed(const Block& block) const {
  std::vector<double> data;
  for_each_cell(block, [&](int array, int i, int head, int dim) {
    const double* x = cell(block.buffer, array, block.row + i, head);
    data.insert(data.end(), x, x + dim);
  });
  return data;
}

void RankRun::unpack(const Block& block, std::span<const double> data) {
  auto next = data.begin();
  for_each_cell(block, [&](int array, int i, int head, int dim) {
    std::copy(next, next + dim, cell(block.buffer, array, block.row + i, head));
    next += dim;
  });
}

std::vector<Tensor> RankRun::arrays(int buffer) const {
  const ScheduledBuffer& b = schedule_.buffers[buffer];
  std::vector<Tensor> whole;
  for (const int dim : dims_[index(b.payload)])
    whole.emplace_back(b.rows, b.heads.size(), dim, kPoison);
  for_each_cell({buffer, 0, b.rows, b.heads}, [&](int array, int row, int head, int dim) {
    const double* x = cell(buffer, array, row, head);
    std::copy(x, x + dim, whole[array].at(row, head - b.heads.begin));
  });
  return whole;
}

void RankRun::clear(const Block& block) {
  const bool is_results = schedule_.buffers[block.buffer].payload == Payload::results;
  for_each_cell(block, [&](int array, int i, int head, int dim) {
    double* x = cell(block.buffer, array, block.row + i, head);
    std::fill(x, x + dim, is_results && array == 1 ? kNegInf : 0.0);
  });
}

void RankRun::copy(const Block& from, const Block& to) { unpack(to, packed(from)); }

// Row by row where the blocks' rows do not lie alike.
template <typename Move>
void RankRun::for_each_pair(const Operation& op, Move move) {
  if (op.runs.empty()) return move(op.from, op.to);
  for (const RowRun& run : op.runs)
    for (int i = 0; i < run.rows; ++i)
      move(Block{op.from.buffer, run.from + i * run.from_step, 1, op.from.heads},
           Block{op.to.buffer, run.to + i * run.to_step, 1, op.to.heads});
}

void RankRun::combine(const Block& from, const Block& to) {
  const bool merges = schedule_.buffers[to.buffer].payload == Payload::results;
  for_each_cell(to, [&](int array, int i, int head, int dim) {
    const double* x = cell(from.buffer, array, from.row + i, head);
    double* sum = cell(to.buffer, array, to.row + i, head);
    if (!merges) {
      for (int d = 0; d < dim; ++d) sum[d] += x[d];
    } else if (array == 0) {
      double* lse = cell(to.buffer, 1, to.row + i, head);
      merge_cell(sum, lse, dim, x, *cell(from.buffer, 1, from.row + i, head));
    }
  });
}

void RankRun::run(const Operation& operation) {
  switch (operation.kind) {
    case OperationKind::clear:
      return clear(operation.to);
    case OperationKind::copy:
      return for_each_pair(operation,
                           [this](const Block& from, const Block& to) { copy(from, to); });
    case OperationKind::combine:
      return for_each_pair(operation,
                           [this](const Block& from, const Block& to) { combine(from, to); });
    case OperationKind::compute:
      return schedule_.pass == Pass::forward ? compute_forward(operation)
                                             : compute_backward(operation);
    case OperationKind::exchange:
      return;
  }
}

In RankRun::in(int buffer, int array, int head) const {
  const ScheduledBuffer& b = schedule_.buffers[buffer];
  const int dim = dims_[index(b.payload)][array];
  return {cell(buffer, array, 0, head), std::ptrdiff_t{b.heads.size()} * dim, dim};
}
Out RankRun::out(int buffer, int array, int head) {
  const In rows = in(buffer, array, head);
  return {const_cast<double*>(rows.data), rows.stride, rows.dim};
}

void RankRun::compute_forward(const Operation& op) {
  const auto& tiles = plan_.tile_lists[op.tiles];
  const ScheduledBuffer& q = schedule_.buffers[op.queries];
  const int blocks = (q.rows + kRowsOfItem - 1) / kRowsOfItem, heads = q.heads.size();
  std::vector<double> max_of_item(static_cast<size_t>(blocks) * heads, kNegInf);
  const auto run = [&](int item) {
    const int head = q.heads.begin + item % heads, begin = item / heads * kRowsOfItem;
    const int kv_head = head / plan_.problem.group_size();
    const ForwardBuffers buffers{in(op.queries, 0, head),     in(op.keys, 0, kv_head),
                                 in(op.keys, 1, kv_head),     out(op.query_sums, 0, head),
                                 out(op.query_sums, 1, head), &max_of_item[item]};
    for (const Tile& tile : tiles) {
      const Interval rows{std::max(begin - tile.q.row, 0),
                          std::min(begin + kRowsOfItem - tile.q.row, tile.q.len)};
      if (rows.begin < rows.end) tile_forward({plan_.problem, tile, rows, options_, head}, buffers);
    }
  };
  execution::run_items(blocks * heads, pairs_at_most(tiles, heads), run);
  for (size_t item = 0; item < max_of_item.size(); ++item) {
    double& of_head = max_logit_[q.heads.begin + static_cast<int>(item) % heads];
    of_head = larger(of_head, max_of_item[item]);
  }
}

void RankRun::compute_backward(const Operation& op) {
  const auto& tiles = plan_.tile_lists[op.tiles];
  const Range heads = schedule_.buffers[op.queries].heads;
  const int rows = schedule_.buffers[op.keys].rows;
  std::vector<Tensor> dk(heads.size()), dv(heads.size());  // of each query head
  const auto run = [&](int i) {
    const int head = heads.begin + i, kv_head = head / plan_.problem.group_size();
    dk[i] = Tensor(rows, 1, dims_[index(Payload::keys)][0], 0.0);
    dv[i] = Tensor(rows, 1, dims_[index(Payload::keys)][1], 0.0);
    const BackwardBuffers buffers{
        in(op.queries, 0, head),     in(op.keys, 0, kv_head),      in(op.keys, 1, kv_head),
        in(op.queries, 1, head),     in(op.queries, 2, head),      in(op.queries, 3, head),
        out(op.query_sums, 0, head), execution::head_of(dk[i], 0), execution::head_of(dv[i], 0)};
    for (const Tile& tile : tiles)
      tile_backward({plan_.problem, tile, {0, tile.q.len}, options_, head}, buffers);
  };
  execution::run_items(heads.size(), pairs_at_most(tiles, heads.size()), run);
  for (int i = 0; i < heads.size(); ++i) {
    add_head(op.key_sums, 0, (heads.begin + i) / plan_.problem.group_size(), dk[i]);
    add_head(op.key_sums, 1, (heads.begin + i) / plan_.problem.group_size(), dv[i]);
  }
}

void RankRun::add_head(int buffer, int array, int head, const Tensor& term) {
  for (int row = 0; row < term.rows; ++row) {
    double* sum = cell(buffer, array, row, head);
    for (int d = 0; d < term.dim; ++d) sum[d] += term.at(row, 0)[d];
  }
}

}  // namespace ringside
