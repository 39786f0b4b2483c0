// Everything on the device that is not attention: copies between resident buffers, global arrays to
// home buffers and back, merges, fills. Each function is one asynchronous launch over a table
// (move_tables.h) in device memory; an empty table is no launch.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "optimized/device/types.h"
#include "optimized/tables/accumulator_tiles.h"
#include "optimized/tables/move_tables.h"
#include "optimized/tables/unseen_rows.h"

namespace ringside::move {

template <typename T>
struct Span {  // in device memory
  const T* rows = nullptr;
  int size = 0;
};

// A global array in the caller's memory.
struct GlobalArray {
  DeviceMatrix matrix;  // [rows, heads, dim]
  ElementType type = ElementType::float32;
  int heads = 0, dim = 0;
  int home_dim = 0;  // columns of home buffers, zeros behind `dim`; 0: dim

  int columns_at_home() const { return home_dim > 0 ? home_dim : dim; }
};

int bytes_of(ElementType type);

// Rows of a global array <-> rows of the stack of home buffers (HostRowMap), which hold all heads
// of a row side by side.
struct RowMap {
  Span<int32_t> global_of_home, home_of_global;
};

// Tokens come home; padding stays behind.
void shard(const RowMap& map, const GlobalArray& from, void* to, ElementType to_type,
           cudaStream_t stream);
// Sums in home buffers, and what they are yet to be multiplied by.
struct HomeSums {
  const float* cells;
  AccumulatorLayout layout;
  float scale;

  HomeSums(const float* cells_, AccumulatorLayout layout_ = AccumulatorLayout::rows,
           float scale_ = 1)
      : cells(cells_), layout(layout_), scale(scale_) {}
};
// Sums of rows of all heads that are still to be added to those of home buffers (last_sum.h), term
// by term.
struct Added {
  struct Term {
    const float* rows = nullptr;
    const int32_t* of_home = nullptr;  // which one, of each row at home; negative: none
    bool begins = true;                // a sum; else it belongs to that of the term before
  };
  Term terms[kMostTermsAtEnd];
  int count = 0;
};
// Writes every row of the global array: zeros where no rank owns it, nothing where it is kWritten.
void unshard(const RowMap& map, const HomeSums& from, const GlobalArray& to, cudaStream_t stream,
             const Added& added = {});

// What backward kernels need of every token and head, in home buffers: delta = dout . out, and lse.
struct OfSoftmax {
  DeviceScalars delta, lse;  // [rows, heads]
};
// What becomes 0 beside, for the launches behind.
struct Cleared {
  struct Zeros {
    void* data = nullptr;  // at a multiple of 16 bytes
    int64_t bytes = 0;     // a multiple of 4
  };
  static constexpr int kMostZeros = 3;
  Zeros zeros[kMostZeros];
  // Rows that no attention kernel writes, of arrays of queries and of keys, of which those without
  // memory are left out.
  UnseenRows unseen;
  GlobalArray of_queries, of_keys[2];
  int rows_q = 0, rows_k = 0;
};
void shard_softmax(const RowMap& map, const GlobalArray& dout, const GlobalArray& out,
                   const GlobalArray& lse, const OfSoftmax& to, const Cleared& cleared,
                   cudaStream_t stream);

// Writes every row of the caller's lse: -inf where no rank owns it.
void unshard_lse(const RowMap& map, const float* from, const GlobalArray& lse, cudaStream_t stream);

struct Blocks {
  Span<CellBlock> table;
  const int32_t* map;  // that some of them go by

  Blocks(Span<CellBlock> blocks, const int32_t* rows = nullptr) : table(blocks), map(rows) {}
};

void copy(const Blocks& blocks, const void* from, void* to, int bytes_of_cell, cudaStream_t stream);
void add(const Blocks& blocks, const float* from, float* to, int dim, cudaStream_t stream);

struct Results {  // partial results (partial.h), a cell each
  float *out = nullptr, *lse = nullptr;
};
void merge(const Blocks& blocks, const Results& from, const Results& to, int dim,
           cudaStream_t stream);

// The rows that no attention kernel writes become 0 in out, -inf in lse; tokens the logit of their
// head's sink, if there are sinks.
void clear_unseen_results(const UnseenRows& unseen, const GlobalArray& out, const GlobalArray& lse,
                          const float* sinks, int rows, cudaStream_t stream);

void fill(float* x, int64_t size, float value, cudaStream_t stream);

// [heads] float32 that kernels raise as ordered_key() in the same place: -inf first, floats at
// last.
void start_max_logit(float* max_logit, int heads, cudaStream_t stream);
void finish_max_logit(float* max_logit, int heads, cudaStream_t stream);

// A sink is a partial result without a value; merged into home rows, once.
struct Sinks {
  const float* logits = nullptr;  // [heads]
  int heads = 0;
};
void merge_sinks(const RowMap& map, const Sinks& sinks, const Results& home, int dim,
                 AccumulatorLayout layout, cudaStream_t stream);

// dsink[h] = -sum over rows of exp(sink[h] - lse) * delta, in one order. The map's tokens, all of
// them or those that are not unseen, are to see something.
void sink_gradients(const RowMap& map, const Sinks& sinks, const OfSoftmax& softmax, float* dsink,
                    cudaStream_t stream);
void sink_gradients(const RowMap& map, const UnseenRows& unseen, const Sinks& sinks,
                    const OfSoftmax& softmax, float* dsink, cudaStream_t stream);

}  // namespace ringside::move
