// Rules of fetch: for those who make its plans and those who count them without.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reference/plan/plan.h"

namespace ringside {

// Rows between two runs of an owner's rows that are fetched, too, as a message more would cost
// more: at most so many.
int most_rows_between(const Shard& home);

// Appends rows [rows.begin, rows.end) of a buffer.
void append_rows(Shard& shard, const Shard& from, Interval rows);

int num_stages(int wanted, int cp_size);  // as many as there are owners are enough

// The owners, from the next rank on, each to the stage in which the middle of its rows falls; -1
// where there are none.
std::vector<int> stages_of_owners(int rank, std::span<const int64_t> rows, int stages);

}  // namespace ringside
