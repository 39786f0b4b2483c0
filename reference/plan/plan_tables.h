// A plan as flat int32 tables: what is written to JSON, compared, and uploaded to a device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reference/plan/plan.h"

namespace ringside {

struct Table {
  std::vector<std::string> columns;
  std::vector<int32_t> cells;  // [rows, columns]

  int width() const { return static_cast<int>(columns.size()); }
  int rows() const { return static_cast<int>(cells.size()) / width(); }
  const int32_t* row(int i) const {
    return cells.data() + static_cast<std::ptrdiff_t>(i) * width();
  }
  bool operator==(const Table&) const = default;
};

// Everything of a plan but its problem and names. homes: one row a rank. steps and messages: by
// rank, then step. direction: 0 a send, 1 a receive. operand: 0 q, 1 kv. kind: see ExchangeKind.
// row: see kByPosition.
struct PlanTables {
  Table shards{{"shard", "seq", "pos", "stride", "row", "len"}, {}};
  Table tiles{{"tile_list", "seq", "q_pos", "q_stride", "q_row", "q_len", "k_pos", "k_stride",
               "k_row", "k_len"},
              {}};
  Table homes{{"rank", "q_shard", "kv_shard"}, {}};
  Table steps{{"rank", "step", "kind", "q_shard", "q_head_begin", "q_head_end", "kv_shard",
               "kv_head_begin", "kv_head_end", "tile_list"},
              {}};
  Table messages{
      {"rank", "step", "direction", "peer", "operand", "row", "rows", "head_begin", "head_end"},
      {}};

  std::vector<Table*> all() { return {&shards, &tiles, &homes, &steps, &messages}; }
};
inline constexpr const char* kTableNames[] = {"shards", "tiles", "homes", "steps", "messages"};

PlanTables to_tables(const Plan& plan);

// Fills `plan`'s pools, homes and steps; problem and names are the caller's. Raises InvalidArgument
// where a table names a rank, step, shard or tile list out of order. Prove the result with
// verify().
void from_tables(const PlanTables& tables, Plan& plan);

}  // namespace ringside
