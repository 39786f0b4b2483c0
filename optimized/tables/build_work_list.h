// Work lists from the tiles of a plan's step, on the host.
//
// Works for the tiles of any plan, a user's own too: where two tiles name overlapping rows of a
// buffer, the rows are cut so that every row belongs to one item, which is then the only one to
// write it. Items are sorted, as a GPU starts them in order; items that see nothing are left out.
//
// Plans whose lengths only the device knows have lists of the same kind, filled there:
// length_tables.h.
#pragma once

#include <cstdint>
#include <vector>

#include "optimized/tables/neighbours.h"
#include "optimized/tables/work_list.h"
#include "reference/plan/plan.h"

namespace ringside {

struct RankTiles {  // what one rank computes, and where its buffers begin in the launch's matrices
  const std::vector<Tile>* tiles = nullptr;
  int q_row = 0, k_row = 0;
};

enum class ItemOrder : uint8_t {
  longest_first,
  by_document,  // of a rank, the one with the longest item first; its items longest first: they
                // read the same keys about the same time, while these are in the cache. Unless one
                // has half of the work, behind which processors would idle
};

struct WorkOfItems {         // what the items of a list have to do
  int64_t rows_met = 0;      // rows of partners that the item meets in the middle of all work
  int most_rows_met = 0;     // by any item
  bool in_part = false;      // of keys: most items of a document meet other ones than each other
  double longest_share = 0;  // of all work, what the longest item has
  bool is_even = false;      // whether others have nearly as much
};

struct HostWorkList : WorkOfItems {
  std::vector<WorkItem> items;
  std::vector<Segment> partners;
  ItemOrder order = ItemOrder::longest_first;
  int head_parts = 1;  // of items of keys: in how many their query heads are taken
};

// Items are blocks of query rows, partners key segments.
HostWorkList query_items(const Problem& problem, const std::vector<RankTiles>& ranks,
                         int rows_of_item, ItemOrder order = ItemOrder::longest_first,
                         Neighbours queries = Neighbours::apart);

// Items are blocks of key rows, partners query segments.
HostWorkList key_items(const Problem& problem, const std::vector<RankTiles>& ranks,
                       int rows_of_item, ItemOrder order = ItemOrder::longest_first,
                       Neighbours queries = Neighbours::apart);

// From the first to the last row of its only partner that sees keys of an item of keys.
Interval queries_met(const HostWorkList& list, const Mask& mask, const WorkItem& item);

// Whether no two items are of one sequence: of key items, each query then meets one at most.
bool one_item_a_sequence(const HostWorkList& list);

}  // namespace ringside
