// Score options in 16-bit kernels: what lies between q.k and the softmax, and between the softmax
// and v. The formulas are those of reference/attention/score_model.h; dropout draws the same bits.
//
// Kernels are compiled for none of this, for all of it, and for parts; numbers of the launch say
// which of it is asked for. With softcap or ALiBi, scores are logits to base 2 when the
// softmax has them; else they are q.k, and the softmax scale is folded into the exponent. Where
// softcap stands alone the forward softmax itself bends them, and has logits in the end.
#pragma once

#include <cmath>

#include "optimized/attention/hopper/far_softcap.h"
#include "optimized/attention/hopper/machine/numbers.h"
#include "optimized/attention/hopper/near_softcap.h"
#include "optimized/attention/kernel.h"
#include "reference/rows/seen_rows.h"

namespace ringside::hopper {

// Which score options an instance of a kernel knows: the less of its code, the quicker.
// linear: ALiBi, and any softmax scale; softcap: no other, where some scores may be small beside
// the cap or all count as far, and, forward, the scale is above zero; low_softcap: likewise,
// forward, of a low cap. Forward, all but the first know sinks and the largest score.
enum class Options { none, linear, softcap, low_softcap, dropout, all };
// Whether the softmax itself bends scores.
template <Options kOptions>
inline constexpr bool kBends = kOptions == Options::softcap || kOptions == Options::low_softcap;
template <Options kInstance, Options kOption>
inline constexpr bool kKnows = kInstance == kOption || kInstance == Options::all;

// Beside a cap up to this 2^(bent logits) are weights as they are: normal numbers of float16, as
// e^-9.7 and e^9.7 are; in bfloat16 e^50, which a million times may be summed up, and values of up
// to 2^35 with them, before that is infinite.
inline float most_low_softcap(ElementType type) {
  return type == ElementType::float16 ? 9.7f : 50.f;
}

inline constexpr float kLn2 = 0.69314718055994531f;

// Of a launch.
struct ScoreNumbers {
  const float* alibi_slopes;  // by global head; or none
  const float* sinks;         // by global head, merged into final results; or none
  int32_t* max_logit;         // by global head; or none
  int first_head;             // global number of resident head 0
  float scale_log2;           // from q.k to logits to base 2
  float softcap;              // 0: none
  NearSoftcap near;
  FarSoftcap far;
  bool in_logits;         // scores become logits before the softmax; else the scale is folded
  float unit;             // from what the softmax has to natural logits
  bool drops;             // whether dropout drops anything
  uint32_t last_dropped;  // random words up to this one
  float kept_factor;      // of weights that dropout keeps
  uint32_t first_seq;
  int first_q;        // added to the queries of sequence 0
  uint32_t keys[20];  // of Philox's rounds

  // Whether scores are capped, of which some may be near or all count as far, and nothing else
  // happens to them.
  bool only_cap() const {
    const bool bends = near.squared > 0 || (softcap <= kNoneIsNear && far.holds());
    return softcap != 0 && bends && alibi_slopes == nullptr && !drops;
  }
};

inline ScoreNumbers score_numbers(const AttentionShape& s, const ScoreOptions& o,
                                  const float* sinks = nullptr, int32_t* max_logit = nullptr) {
  ScoreNumbers n{};
  n.alibi_slopes = o.alibi_slopes, n.sinks = sinks, n.max_logit = max_logit;
  n.first_head = s.first_head;
  n.scale_log2 = s.softmax_scale * kLog2E;
  n.softcap = o.softcap;
  if (o.softcap != 0) n.near = {s.softmax_scale, o.softcap}, n.far = {s.softmax_scale, o.softcap};
  n.in_logits = o.softcap != 0 || o.alibi_slopes != nullptr || !(s.softmax_scale > 1e-30f);
  n.unit = n.in_logits ? kLn2 : s.softmax_scale;
  // keeps() of philox.h compares (word + 0.5) / 2^32 with p, without rounding.
  const double words = std::ceil(o.dropout.p * 4294967296.0 - 0.5);
  n.drops = words >= 1;
  n.last_dropped = n.drops ? static_cast<uint32_t>(words - 1) : 0;
  n.kept_factor = n.drops ? static_cast<float>(1 / (1 - o.dropout.p)) : 1;
  n.first_seq = static_cast<uint32_t>(o.dropout.first_seq), n.first_q = o.dropout.first_q;
  for (uint32_t round = 0; round < 10; ++round) {
    n.keys[2 * round] = static_cast<uint32_t>(o.dropout.seed) + round * 0x9E3779B9u;
    n.keys[2 * round + 1] = static_cast<uint32_t>(o.dropout.seed >> 32) + round * 0xBB67AE85u;
  }
  return n;
}

// Where a block of scores stands: of its first query and its first key.
struct alignas(16) ScorePlace {
  float distance;        // aligned query minus key
  float q_step, k_step;  // from row to row
  int q, k;              // positions; of queries as dropout counts them
  int q_stride, k_stride;
  uint32_t seq;  // as dropout counts them

  __device__ ScorePlace(const ScoreNumbers& n, const SequenceMask& s, const Segment& of_q,
                        int q_row, const Segment& of_k, int k_row)
      : q_step(of_q.stride),
        k_step(of_k.stride),
        q(of_q.position(q_row)),
        k(of_k.position(k_row)),
        q_stride(of_q.stride),
        k_stride(of_k.stride),
        seq(n.first_seq + of_q.seq) {
    distance = static_cast<float>(s.mask.aligned(q, s.len_q, s.len_k) - k);
    if (of_q.seq == 0) q += n.first_q;
  }
  __device__ bool shares_counters() const { return ((k_stride ^ 1) | (k & 3)) == 0; }
};

// cap * tanh(softcap's argument) of q.k, by FarSoftcap's numbers. Exponent and quotient are good to
// some 2^-22 of 1, which the hardware's own tanh is not.
__device__ inline float bend(float score, float power, float cap = 1) {
  return fmaf(-2 * cap, inverse_fast(1 + exp2_fast(score * power)), cap);
}

// Four random words of a query and four neighbouring keys: philox4x32_10 of philox.h. Of several
// counters, four_keys and every `step` behind it, a round is done before the next begins.
template <int kCounters>
__device__ __forceinline__ void draw(const ScoreNumbers& n, uint32_t seq, uint32_t head, uint32_t q,
                                     uint32_t four_keys, uint32_t step,
                                     uint32_t (&words)[kCounters][4]) {
#pragma unroll
  for (int i = 0; i < kCounters; ++i)
    words[i][0] = seq, words[i][1] = head, words[i][2] = q, words[i][3] = four_keys + i * step;
#pragma unroll
  for (int round = 0; round < 10; ++round)
#pragma unroll
    for (uint32_t(&word)[4] : words) {
      const uint64_t a = uint64_t{0xD2511F53} * word[0], b = uint64_t{0xCD9E8D57} * word[2];
      word[0] = static_cast<uint32_t>(b >> 32) ^ word[1] ^ n.keys[2 * round];
      word[1] = static_cast<uint32_t>(b);
      word[2] = static_cast<uint32_t>(a >> 32) ^ word[3] ^ n.keys[2 * round + 1];
      word[3] = static_cast<uint32_t>(a);
    }
}
__device__ __forceinline__ void draw(const ScoreNumbers& n, uint32_t seq, uint32_t head, uint32_t q,
                                     uint32_t four_keys, uint32_t (&word)[4]) {
  uint32_t words[1][4];
  draw(n, seq, head, q, four_keys, 0, words);
#pragma unroll
  for (int i = 0; i < 4; ++i) word[i] = words[0][i];
}

// One pair's, where neighbours share nothing.
__device__ __forceinline__ bool keeps_pair(const ScoreNumbers& n, uint32_t seq, uint32_t head,
                                           int q, int k) {
  uint32_t word[4];
  draw(n, seq, head, static_cast<uint32_t>(q), static_cast<uint32_t>(k / 4), word);
  const uint32_t mine =
      k % 4 < 2 ? (k % 4 == 0 ? word[0] : word[1]) : (k % 4 == 2 ? word[2] : word[3]);
  return mine > n.last_dropped;
}

}  // namespace ringside::hopper
