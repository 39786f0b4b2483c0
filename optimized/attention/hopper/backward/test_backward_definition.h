// What the gradients of a pack of documents are, in float64, of values and masks that a backward
// kernel is put to: NaN in the rows between documents.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "optimized/attention/kernel.h"
#include "optimized/device/with_type.h"
#include "reference/rows/mask.h"

namespace ringside::hopper::testing {

inline constexpr int kGap = 3;        // rows of NaN before, between and behind documents
inline constexpr double kBefore = 3;  // what sums begin with

struct Lengths {
  int q, k;
};

struct Pack {
  const char* name;
  std::vector<Lengths> documents;
  Mask mask;
  int dim_qk, dim_v;
  int heads = 2, kv_heads = 1;
  Accumulate accumulate = Accumulate::only;
  int piece = 1 << 20;  // longest query segment
  bool one_item_of_keys = false;
  int head_parts = 1;
  bool in_turn = false, rounds = false;  // the last to add leaves final dq
  bool some_final = false;               // of items, the dk and dv
  AccumulatorLayout dq_layout = AccumulatorLayout::rows;
};

// Whether dq, sums, may lie in fragments.
inline bool may_be_in_fragments(const Pack& p) {
  return p.dim_qk <= 128 && p.dim_qk % 32 == 0 && !p.one_item_of_keys && !p.rounds;
}

struct Rows {  // of one side
  int heads, dim, rows;
  std::vector<double> of;
  Rows(int heads_, int dim_, int rows_, double value = NAN)
      : heads(heads_), dim(dim_), rows(rows_), of(size_t(rows_) * heads_ * dim_, value) {}
  double* at(int row, int head) { return &of[(size_t(row) * heads + head) * dim]; }
  const double* at(int row, int head) const { return &of[(size_t(row) * heads + head) * dim]; }
};

inline double dot(const double* a, const double* b, int dim) {
  double sum = 0;
  for (int d = 0; d < dim; ++d) sum += a[d] * b[d];
  return sum;
}
inline void add_scaled(double* to, double factor, const double* from, int dim) {
  for (int d = 0; d < dim; ++d) to[d] += factor * from[d];
}

struct Inputs {
  const Pack& pack;
  ElementType type;
  std::vector<int> row_q, row_k;  // of a document's first
  int rows_q = kGap, rows_k = kGap;
  double scale;

  Inputs(const Pack& p, ElementType t) : pack(p), type(t), scale(1 / std::sqrt(double(p.dim_qk))) {
    for (const Lengths& d : p.documents) {
      row_q.push_back(rows_q), row_k.push_back(rows_k);
      rows_q += d.q + kGap, rows_k += d.k + kGap;
    }
  }
  Interval visible(int document, int query) const {
    return pack.mask.visible(query, pack.documents[document].q, pack.documents[document].k);
  }
  double rounded(double x) const {
    return with_type(type, [&](auto element) {
      return double(static_cast<float>(decltype(element)(static_cast<float>(x))));
    });
  }
  // Tokens get normal values, but for queries that see nothing; all else stays NaN.
  Rows tokens(bool of_q, int heads, int dim, unsigned seed) const {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    Rows x(heads, dim, of_q ? rows_q : rows_k);
    for (int s = 0; s < int(pack.documents.size()); ++s)
      for (int i = 0; i < (of_q ? pack.documents[s].q : pack.documents[s].k); ++i)
        if (!of_q || visible(s, i).size() > 0)
          for (int c = 0; c < heads * dim; ++c)
            x.at((of_q ? row_q[s] : row_k[s]) + i, 0)[c] = rounded(normal(random));
    return x;
  }
  // What a softmax might have left: about a sum of the keys that a row sees; -inf for none.
  Rows lse() const {
    Rows x(pack.heads, 1, rows_q);
    for (int s = 0; s < int(pack.documents.size()); ++s)
      for (int i = 0; i < pack.documents[s].q; ++i)
        std::fill_n(x.at(row_q[s] + i, 0), pack.heads,
                    static_cast<float>(std::log(double(visible(s, i).size())) + 0.5));
    return x;
  }
};

struct Gradients {
  Rows dq, dk, dv;
};

inline Gradients by_definition(const Inputs& in, const Rows& q, const Rows& k, const Rows& v,
                               const Rows& dout, const Rows& lse, const Rows& delta) {
  const Pack& p = in.pack;
  Gradients g{Rows(p.heads, p.dim_qk, in.rows_q, 0), Rows(p.kv_heads, p.dim_qk, in.rows_k, 0),
              Rows(p.kv_heads, p.dim_v, in.rows_k, 0)};
  for (int s = 0; s < int(p.documents.size()); ++s)
    for (int i = 0; i < p.documents[s].q; ++i)
      for (int j = in.visible(s, i).begin; j < in.visible(s, i).end; ++j)
        for (int h = 0; h < p.heads; ++h) {
          const int a = in.row_q[s] + i, b = in.row_k[s] + j, kv = h / (p.heads / p.kv_heads);
          const double score = in.scale * dot(q.at(a, h), k.at(b, kv), p.dim_qk);
          const double weight = std::exp(score - *lse.at(a, h));
          const double grad = dot(dout.at(a, h), v.at(b, kv), p.dim_v) - *delta.at(a, h);
          add_scaled(g.dq.at(a, h), in.scale * weight * grad, k.at(b, kv), p.dim_qk);
          add_scaled(g.dk.at(b, kv), in.scale * weight * grad, q.at(a, h), p.dim_qk);
          add_scaled(g.dv.at(b, kv), weight, dout.at(a, h), p.dim_v);
        }
  return g;
}

}  // namespace ringside::hopper::testing
