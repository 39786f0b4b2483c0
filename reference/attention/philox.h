// Dropout that does not depend on who computes what.
//
// Whether the weight of a (query, key) pair is kept is a function of the seed and of the pair's
// global names: sequence, query head, query position, key position. Every partition, transport,
// tile shape and pass draws the same mask as no partitioning at all. The generator is Philox4x32-10
// (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): counter in, four random
// words out.
#pragma once

#include <cstdint>

#include "reference/support/host_device.h"

namespace ringside {

struct Philox {  // four 32-bit words
  uint32_t word[4];
};

RINGSIDE_HD inline Philox philox4x32_10(Philox counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * counter.word[0];
    const uint64_t b = uint64_t{0xCD9E8D57} * counter.word[2];
    counter = {{static_cast<uint32_t>(b >> 32) ^ counter.word[1] ^ key0, static_cast<uint32_t>(b),
                static_cast<uint32_t>(a >> 32) ^ counter.word[3] ^ key1, static_cast<uint32_t>(a)}};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return counter;
}

struct Dropout {
  double p = 0;  // probability that a weight is dropped; the others are divided by 1-p
  uint64_t seed = 0;
  // Of a piece of a longer pack: which sequence of the whole its first one is, and at which of that
  // one's queries it begins.
  int first_seq = 0, first_q = 0;

  // Neighbouring keys share a counter: key k takes word k%4 of counter (seq, head, q, k/4).
  RINGSIDE_HD bool keeps(int seq, int head, int q, int k) const {
    const int q_of_whole = seq == 0 ? first_q + q : q;
    const Philox counter{{static_cast<uint32_t>(first_seq + seq), static_cast<uint32_t>(head),
                          static_cast<uint32_t>(q_of_whole), static_cast<uint32_t>(k / 4)}};
    const Philox random =
        philox4x32_10(counter, static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
    return (random.word[k % 4] + 0.5) * (1.0 / 4294967296.0) >= p;
  }
};

}  // namespace ringside
