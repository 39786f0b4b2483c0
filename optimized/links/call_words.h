// What streams do at the ends of a call with the words of their process: count it, compare what
// came with what should have, and spoil its results where something was wrong.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

namespace ringside {

struct ExpectedWord {
  uint32_t* word;  // put back to 0
  uint32_t token;
};

struct Spoilable {  // memory of results: NaN in every type, if the call failed
  void* data = nullptr;
  int64_t bytes = 0;
};
inline constexpr int kMostSpoilable = 16;  // of a launch

void start_call_words(uint32_t* header, cudaStream_t stream);
// `unfit` is a word in device memory: whether the call failed.
void end_call_words(uint32_t* header, const ExpectedWord* expected, int number,
                    const std::vector<Spoilable>& results, uint32_t* unfit, cudaStream_t stream);

}  // namespace ringside
