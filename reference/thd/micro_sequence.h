// The varlen arguments of a micro-sequence: a window of a packed stream whose keys begin earlier.
//
// Tokens [begin, end) of the stream attend to their documents. The first document may straddle
// `begin`: its keys start at first_document_begin, before its first query here, which bottom-right
// alignment expresses (more keys than queries). Canonical means that cu_seqlens_k starts at 0 over
// keys narrowed to rows [first_document_begin, end). Kernels may read, and backward even write,
// out of place when cu_seqlens_k starts elsewhere (Fast-LLM's pull request 514).
#pragma once

#include <cstdint>
#include <vector>

#include "reference/thd/checks.h"

namespace ringside::thd {

struct MicroSequence {
  Offsets cu_seqlens_q{0}, cu_seqlens_k{0};  // [documents with a token in the window + 1]
  int first_document_begin = 0;              // where in the stream the keys start
};

// `lengths` are those of the documents of the whole stream; empty documents are left out.
MicroSequence canonical_cu_seqlens_k(const std::vector<int32_t>& lengths, int begin, int end);

// Refuses key offsets that do not start at 0, with the fix in the message.
void check_canonical_cu_seqlens_k(const Offsets& cu_seqlens_k);

}  // namespace ringside::thd
