// Whether all processes read the same lengths: a word of each, and results of an empty batch where
// they differ.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "optimized/tables/length_tables.h"

namespace ringside {

// Of the lengths that tables were filled from; see LengthsWord.
void write_lengths_word(const LengthTables& tables, uint64_t* word, cudaStream_t stream);

struct WordsOfProcesses {  // [processes], that of `mine` elsewhere
  const uint64_t* data;
  int processes, mine;
  const uint64_t* own;
};
// *differ: whether any is another one; if so *status becomes 1, as of lengths that do not fit.
void compare_lengths(const WordsOfProcesses& words, int32_t* differ, int32_t* status,
                     cudaStream_t stream);

struct Emptied {  // memory of results, and what they are of an empty batch
  void* data = nullptr;
  int64_t bytes = 0;
  enum class Value { zero, minus_infinity } value = Value::zero;  // the latter in float32
};
void empty_if(const int32_t* differ, const std::vector<Emptied>& results, cudaStream_t stream);

}  // namespace ringside
