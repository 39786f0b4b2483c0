#include "reference/partition/balanced.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <tuple>
#include <utility>

#include "reference/partition/block_costs.h"
#include "reference/support/interrupt.h"

namespace ringside {
namespace {

// Pieces hold at most 1/n of a rank's mean rows and 2/n of its mean work. The first n that balances
// is taken: 1 leaves whole what fits a rank, and 2 makes dual chunks of one long sequence.
constexpr int kPiecesOfRank[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32};
constexpr int64_t kPercentOfMean = 105;  // of work, on the busiest rank, that counts as balanced
constexpr int kProbes = 8;               // ranks that are asked for room before a piece is cut

struct Piece {
  int seq = 0;
  Interval rows;
  int64_t cost = 0;
  double density = 0;  // work per row: one division of whole numbers, the same on every machine
};

Piece piece_of(const BlockCosts& costs, int seq, Interval rows) {
  const int64_t cost = costs.of(seq, rows);
  return {seq, rows, cost, static_cast<double>(cost) / static_cast<double>(rows.size())};
}

// Costliest per row first, then costliest.
struct DealtLater {
  bool operator()(const Piece& a, const Piece& b) const {
    return std::tuple(a.density, a.cost, -a.seq, -a.rows.begin) <
           std::tuple(b.density, b.cost, -b.seq, -b.rows.begin);
  }
};

// A document in as few pieces as hold so many rows and so much work, cut at blocks from its end.
void append_pieces(const BlockCosts& costs, int seq, int most_rows, int64_t most_cost,
                   std::vector<Piece>& pieces) {
  const int rows = costs.rows(seq);
  for (int end = rows; end > 0;) {
    int begin = 0;
    if (end > most_rows || costs.of(seq, {0, end}) > most_cost) {
      int high = (end - 1) / kBlockRows, low = 0;  // block `high` fits, being one
      const auto fits = [&](int block) {
        const Interval part{block * kBlockRows, end};
        return part.size() <= most_rows && costs.of(seq, part) <= most_cost;
      };
      while (low < high) {
        const int middle = low + (high - low) / 2;
        fits(middle) ? high = middle : low = middle + 1;
      }
      begin = high * kBlockRows;
    }
    pieces.push_back(piece_of(costs, seq, {begin, end}));
    end = begin;
  }
}

// Deals pieces to ranks that must not own more rows than their room.
class Dealer {
 public:
  Dealer(const BlockCosts& costs, int cp_size)
      : costs_(costs), cp_size_(cp_size), rows_(cp_size), work_(cp_size), of_rank_(cp_size) {
    for (int rank = 0; rank < cp_size; ++rank) {
      room_.push_back(room_of(rank));
      wait_for_more(rank);
    }
  }

  void deal(std::vector<Piece> pieces) {
    std::priority_queue<Piece, std::vector<Piece>, DealtLater> left({}, std::move(pieces));
    while (!left.empty()) {
      check_interrupt(64);
      const Piece piece = left.top();
      left.pop();
      const int rank = rank_for(piece);
      const int room = room_[rank];
      if (piece.rows.size() <= room) {
        give(rank, piece);
        continue;
      }
      // To the end of a block where there is one in the room.
      const int aligned = (piece.rows.begin + room) / kBlockRows * kBlockRows;
      const int end = aligned > piece.rows.begin ? aligned : piece.rows.begin + room;
      give(rank, piece_of(costs_, piece.seq, {piece.rows.begin, end}));
      left.push(piece_of(costs_, piece.seq, {end, piece.rows.end}));
    }
  }

  int64_t most_work() const { return *std::ranges::max_element(work_); }
  std::vector<std::vector<Piece>> of_rank() && { return std::move(of_rank_); }

 private:
  // How urgent a rank is; `version` is that of the rank's load, which changes.
  struct Wanting {
    double density;  // of the work and rows that it lacks to the mean
    int64_t rows;
    int rank, version;
    bool operator<(const Wanting& other) const {
      return std::tuple(density, -rows, -rank) <
             std::tuple(other.density, -other.rows, -other.rank);
    }
  };
  struct Roomy {
    int room, rank;
    bool operator<(const Roomy& other) const {
      return std::tuple(room, -rank) < std::tuple(other.room, -other.rank);
    }
  };

  int room_of(int rank) const {
    const int64_t all = costs_.all_rows();
    if (all >= int64_t{100} * cp_size_) return static_cast<int>(all * 101 / (100 * cp_size_));
    return static_cast<int>(all * (rank + 1) / cp_size_ - all * rank / cp_size_);
  }

  void wait_for_more(int rank) {
    if (room_[rank] == 0) return;
    const int64_t rows = costs_.all_rows() - cp_size_ * rows_[rank];
    const int64_t work = costs_.all_work() - cp_size_ * work_[rank];
    const double density = rows > 0 ? static_cast<double>(work) / static_cast<double>(rows)
                                    : -std::numeric_limits<double>::infinity();
    const int version = static_cast<int>(of_rank_[rank].size());
    wanting_.push({density, rows_[rank], rank, version});
    roomy_.push({room_[rank], rank});
  }

  // The rank that lacks most work per row among those with room for the whole piece; if none of the
  // first has, the one with most room.
  int rank_for(const Piece& piece) {
    std::vector<Wanting> without_room;
    int found = -1;
    while (found < 0 && !wanting_.empty() && std::ssize(without_room) < kProbes) {
      const Wanting next = wanting_.top();
      wanting_.pop();
      if (next.version != std::ssize(of_rank_[next.rank])) continue;  // an old load
      if (room_[next.rank] >= piece.rows.size())
        found = next.rank;
      else
        without_room.push_back(next);
    }
    for (const Wanting& wanting : without_room) wanting_.push(wanting);
    if (found >= 0) return found;
    while (roomy_.top().room != room_[roomy_.top().rank]) roomy_.pop();
    return roomy_.top().rank;
  }

  void give(int rank, const Piece& piece) {
    of_rank_[rank].push_back(piece);
    rows_[rank] += piece.rows.size();
    work_[rank] += piece.cost;
    room_[rank] -= piece.rows.size();
    wait_for_more(rank);
  }

  const BlockCosts& costs_;
  int cp_size_;
  std::vector<int64_t> rows_, work_;  // [cp_size] so far
  std::vector<int> room_;             // [cp_size] rows that may still come
  std::vector<std::vector<Piece>> of_rank_;
  std::priority_queue<Wanting> wanting_;
  std::priority_queue<Roomy> roomy_;
};

std::vector<Piece> pieces_within(const BlockCosts& costs, int cp_size, int pieces_of_rank) {
  const int64_t share = int64_t{cp_size} * pieces_of_rank;
  const int64_t rows = costs.all_rows() / share / kBlockRows * kBlockRows;
  const auto most_rows = static_cast<int>(std::max<int64_t>(rows, kBlockRows));
  std::vector<Piece> pieces;
  for (int seq = 0; seq < costs.batch(); ++seq)
    append_pieces(costs, seq, most_rows, 2 * costs.all_work() / share, pieces);
  return pieces;
}

// [cp_size] what each rank gets, with as few pieces as balance, else with the best there are.
std::vector<std::vector<Piece>> best_deal(const BlockCosts& costs, int cp_size) {
  std::vector<std::vector<Piece>> best;
  int64_t least = std::numeric_limits<int64_t>::max();
  size_t num_pieces = 0;
  for (const int pieces_of_rank : kPiecesOfRank) {
    std::vector<Piece> pieces = pieces_within(costs, cp_size, pieces_of_rank);
    if (!best.empty() && pieces.size() == num_pieces) continue;  // the same once more
    num_pieces = pieces.size();
    Dealer dealer(costs, cp_size);
    dealer.deal(std::move(pieces));
    if (dealer.most_work() < least) {
      least = dealer.most_work();
      best = std::move(dealer).of_rank();
    }
    if (least <= kPercentOfMean * costs.all_work() / (int64_t{100} * cp_size)) break;
  }
  return best;
}

std::vector<Shard> shards_of(std::vector<std::vector<Piece>> dealt) {
  std::vector<Shard> shards;
  for (auto& pieces : dealt) {
    std::ranges::sort(pieces, {}, [](const Piece& p) { return std::pair(p.seq, p.rows.begin); });
    Shard& shard = shards.emplace_back();
    for (const Piece& p : pieces) append(shard, p.seq, p.rows.begin, 1, p.rows.size());
  }
  return shards;
}

// The keys that go with the queries before row `row` of a sequence: the same share, whole blocks.
int keys_before(int row, int rows_q, int rows_k) {
  if (rows_q == rows_k || row == rows_q) return row == rows_q ? rows_k : row;
  const auto key = static_cast<int>(int64_t{row} * rows_k / rows_q);
  return key - key % kBlockRows;
}

std::vector<Shard> keys_of(const Problem& problem, const std::vector<Shard>& queries) {
  const PackedLayout &q = problem.layout_q, &k = problem.layout_k;
  std::vector<std::vector<Piece>> dealt(queries.size());
  std::vector<int64_t> rows(queries.size());
  for (size_t rank = 0; rank < queries.size(); ++rank)
    for (const Segment& s : queries[rank]) {
      const int n = q.padded_len(s.seq), m = k.padded_len(s.seq);
      const Interval keys{keys_before(s.pos, n, m), keys_before(s.pos + s.len, n, m)};
      dealt[rank].push_back({s.seq, keys});
      rows[rank] += keys.size();
    }
  for (int seq = 0; seq < k.batch(); ++seq) {
    if (q.padded_len(seq) > 0) continue;
    const auto rank = std::ranges::min_element(rows) - rows.begin();
    dealt[rank].push_back({seq, {0, k.padded_len(seq)}});
    rows[rank] += k.padded_len(seq);
  }
  return shards_of(std::move(dealt));
}

}  // namespace

OwnedRows deal_balanced(const Problem& problem, int cp_size) {
  const BlockCosts costs(problem);
  std::vector<Shard> queries = shards_of(best_deal(costs, cp_size));
  std::vector<Shard> keys =
      problem.layout_k == problem.layout_q ? queries : keys_of(problem, queries);
  return {std::move(queries), std::move(keys)};
}

}  // namespace ringside
