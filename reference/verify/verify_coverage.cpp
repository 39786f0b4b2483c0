// Every visible pair exactly once, proved by counting: a row's tiles together must count as many
// visible keys as the row sees, and no two of them may hold the same key. Rows of one segment share
// their list of tiles, so the second half is checked once a list; whatever looks wrong is recounted
// key by key to name the pair.
#include <algorithm>
#include <map>

#include "reference/plan/tiles.h"
#include "reference/support/errors.h"
#include "reference/support/interrupt.h"
#include "reference/verify/verify.h"

namespace ringside {
namespace {

using TileRefs = std::vector<const Tile*>;

class SequenceCover {
 public:
  SequenceCover(const Problem& problem, int seq, const TileRefs& tiles, Range heads)
      : problem_(problem),
        seq_(seq),
        len_q_(problem.layout_q.len(seq)),
        len_k_(problem.layout_k.len(seq)),
        heads_(heads),
        tiles_(tiles),
        seen_by_(problem.layout_k.padded_len(seq), -1),
        distinct_from_(tiles.size(), {-1, -1}) {
    list_tiles_of_rows();
  }

  int64_t verify() {
    int64_t pairs = 0;
    for (int q = 0; q < len_q_; ++q) {
      const Interval visible = problem_.mask.visible(q, len_q_, len_k_);
      int64_t computed = 0;
      check_interrupt(4 * (begin_[q + 1] - begin_[q] + 1));
      for (int i = begin_[q]; i < begin_[q + 1]; ++i)
        computed += tiles_[tile_[i]]->k.rows_within(visible).size();
      if (computed != visible.size() || !keys_distinct(q)) recount(q, visible);
      pairs += visible.size();
    }
    return pairs;
  }

 private:
  template <typename Visit>  // visit(position, tile index) for every valid query row of every tile
  void for_each_row(Visit visit) const {
    for (int t = 0; t < static_cast<int>(tiles_.size()); ++t) {
      const Segment& q = tiles_[t]->q;
      const int rows = q.rows_below(len_q_);
      check_interrupt(rows);
      for (int i = 0; i < rows; ++i) visit(q.position(i), t);
    }
  }

  void list_tiles_of_rows() {
    begin_.assign(len_q_ + 1, 0);
    for_each_row([&](int q, int) { ++begin_[q + 1]; });
    for (int q = 0; q < len_q_; ++q) begin_[q + 1] += begin_[q];
    tile_.resize(begin_[len_q_]);
    std::vector<int> next(begin_.begin(), begin_.end() - 1);
    for_each_row([&](int q, int t) { tile_[next[q]++] = t; });
  }

  bool keys_distinct(int q) {
    const int n = begin_[q + 1] - begin_[q];
    if (n < 2) return true;
    const auto list = tile_.begin() + begin_[q];
    auto& [known_begin, known_size] = distinct_from_[*list];
    if (known_size == n && std::equal(list, list + n, tile_.begin() + known_begin)) return true;
    int64_t marked = 0;
    for (int i = 0; i < n; ++i) {
      const Segment& k = tiles_[list[i]]->k;
      marked += k.len;
      for (int j = 0; j < k.len; ++j) {
        if (seen_by_[k.position(j)] == q) return false;
        seen_by_[k.position(j)] = q;
      }
    }
    check_interrupt(marked);
    known_begin = begin_[q];
    known_size = n;
    return true;
  }

  void recount(int q, Interval visible) const {
    for (int k = visible.begin; k < visible.end; ++k) {
      int times = 0;
      check_interrupt(4 * (begin_[q + 1] - begin_[q]));
      for (int i = begin_[q]; i < begin_[q + 1]; ++i)
        times += tiles_[tile_[i]]->k.rows_within({k, k + 1}).size();
      const At pair{.row = problem_.layout_q.row_begin(seq_) + q,
                    .key = problem_.layout_k.row_begin(seq_) + k};
      plan_require(times == 1, pair, "query ", q, " of sequence ", seq_, " sees key ", k,
                   ", which is computed ", times, " times for heads [", heads_.begin, ", ",
                   heads_.end, "); expected once");
    }
  }

  const Problem& problem_;
  int seq_, len_q_, len_k_;
  Range heads_;
  const TileRefs& tiles_;
  std::vector<int> begin_, tile_;                   // tiles of row q: tile_[begin_[q]..begin_[q+1])
  std::vector<int> seen_by_;                        // [keys] the last row that marked the key
  std::vector<std::pair<int, int>> distinct_from_;  // by first tile: a list known to be distinct
};

// The heads between which no step's range begins or ends: they are computed by the same tiles.
std::vector<Range> head_classes(const Plan& plan) {
  std::vector<int> cuts{0, plan.problem.num_heads};
  for (const auto& steps : plan.steps_of_rank)
    for (const Step& step : steps) {
      cuts.push_back(step.q.heads.begin);
      cuts.push_back(step.q.heads.end);
    }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  std::vector<Range> classes;
  for (size_t i = 1; i < cuts.size(); ++i) classes.push_back({cuts[i - 1], cuts[i]});
  return classes;
}

int64_t cover(const Plan& plan, const std::vector<int>& tile_lists, Range heads) {
  std::vector<TileRefs> tiles_of_seq(plan.problem.layout_q.batch());
  for (const int list : tile_lists)
    for (const Tile& tile : plan.tile_lists[list]) tiles_of_seq[tile.q.seq].push_back(&tile);
  int64_t pairs = 0;
  for (int seq = 0; seq < plan.problem.layout_q.batch(); ++seq)
    pairs += SequenceCover(plan.problem, seq, tiles_of_seq[seq], heads).verify();
  return pairs;
}

}  // namespace

int64_t verify_coverage(const Plan& plan) {
  std::map<std::vector<int>, int64_t> proven;  // the ranks of an all-to-all share one tile list
  int64_t pairs = 0;
  for (const Range heads : head_classes(plan)) {
    std::vector<int> lists;
    for (const auto& steps : plan.steps_of_rank)
      for (const Step& step : steps)
        if (step.q.heads.contains(heads.begin) && step.tiles != 0) lists.push_back(step.tiles);
    std::sort(lists.begin(), lists.end());
    const auto [known, is_new] = proven.try_emplace(lists, 0);
    if (is_new) known->second = cover(plan, lists, heads);
    pairs = known->second;
  }
  return pairs;
}

}  // namespace ringside
