// Whose home the keys of a buffer come from, asked by segments, never by rows.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "reference/plan/plan.h"
#include "reference/plan/tile_counts.h"

namespace ringside {

// (rank, rows), by rising rank; ranks without any are left out.
using RowsOfOwners = std::vector<std::pair<int, int64_t>>;

int64_t rows_of_all(const RowsOfOwners& rows);
int64_t rows_of_owner(const RowsOfOwners& rows, int rank);

class KeyOwners {
 public:
  explicit KeyOwners(const Plan& plan);  // of which only the homes of keys count

  RowsOfOwners count(std::span<const SeenRows> rows) const;
  RowsOfOwners count(const Shard& shard) const;  // padding included

 private:
  struct Home {
    Segment segment;
    int rank;
  };
  struct Steps {  // the segments of a sequence whose positions agree modulo their stride
    int seq, stride, residue;
    auto operator<=>(const Steps&) const = default;
  };

  const Home& home_of(int seq, int position) const;
  bool count_strided(const SeenRows& seen, RowsOfOwners& counts) const;  // false: it does not know
  void count_runs(const SeenRows& seen, RowsOfOwners& counts) const;

  std::vector<Home> homes_;                   // sorted by (steps, position)
  std::map<Steps, Interval> homes_of_;        // a range of homes_
  std::vector<std::vector<int>> strides_of_;  // [sequences]
  std::vector<Interval> homes_of_sequence_;   // [sequences] ranges of homes_
};

}  // namespace ringside
