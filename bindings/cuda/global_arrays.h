// Arrays of device memory as the C++ half takes them, checked against what a call expects.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "bindings/core/options.h"
#include "bindings/cuda/device_array.h"
#include "optimized/program/program.h"
#include "reference/support/errors.h"

namespace ringside::bindings {

struct Extent {
  int64_t rows, heads, dim;
};

inline move::GlobalArray global_array(const DeviceArray& x, const std::string& name,
                                      const Extent& want) {
  require(x.shape == std::vector<int64_t>{want.rows, want.heads, want.dim}, name, " has shape ",
          x.shape_text(), "; the plan expects [", want.rows, ", ", want.heads, ", ", want.dim, "]");
  return {{reinterpret_cast<void*>(x.data), x.strides[0], x.strides[1], want.rows},
          x.type(),
          static_cast<int>(want.heads),
          static_cast<int>(want.dim)};
}

inline move::GlobalArray lse_array(const DeviceArray& x, int64_t heads, int64_t rows) {
  require(x.shape == std::vector<int64_t>{heads, rows}, "lse has shape ", x.shape_text(),
          "; expected [heads, rows] = [", heads, ", ", rows, "], as attention() returned it");
  if (x.type() != ElementType::float32)
    throw py::type_error("lse is not float32; pass it as attention() returned it");
  return {{reinterpret_cast<void*>(x.data), x.strides[1], x.strides[0], rows},
          x.type(),
          static_cast<int>(heads),
          1};
}

inline const float* floats(const std::optional<DeviceArray>& x, const char* name, int64_t heads) {
  if (!x) return nullptr;
  require(x->shape == std::vector<int64_t>{heads} && x->type() == ElementType::float32, name,
          " has shape ", x->shape_text(), "; expected [", heads, "] float32 on the device");
  return reinterpret_cast<const float*>(x->data);
}

inline int dim_of(const DeviceArray& x, const char* name) {
  require(x.shape.size() == 3, name, " has shape ", x.shape_text(),
          "; expected three dimensions [rows, heads, dim] (THD)");
  return static_cast<int>(x.shape[2]);
}

inline move::GlobalArray same_type(const move::GlobalArray& x, const move::GlobalArray& q,
                                   const std::string& name) {
  if (x.type != q.type) throw py::type_error(concat(name, " has another dtype than q; convert it"));
  return x;
}

struct CallOptions {  // everything that is not an array of q's, k's or v's kind
  OptionsArgument keywords;
  std::optional<DeviceArray> sink, alibi_slopes;

  ScoreOptions score_options(int heads, int dim_qk) const {
    const AttentionOptions resolved = keywords.resolve(heads, dim_qk);
    return {static_cast<float>(resolved.softcap), floats(alibi_slopes, "alibi_slopes", heads),
            resolved.dropout};
  }
  // What a program is made for.
  ProgramOptions of_program(const DeviceArray& q, const DeviceArray& v, int heads,
                            bool poison) const {
    const int dim_qk = dim_of(q, "q"), dim_v = dim_of(v, "v");
    require(dim_qk >= 1 && dim_v >= 1, "head dimensions ", dim_qk, " and ", dim_v,
            "; expected at least 1");
    const AttentionOptions resolved = keywords.resolve(heads, dim_qk);
    const bool of_scores = resolved.softcap != 0 || alibi_slopes || resolved.dropout.p != 0;
    return {dim_qk,
            dim_v,
            q.type(),
            of_scores,
            static_cast<float>(resolved.softmax_scale),
            poison ? Poison::on : Poison::off,
            sink.has_value(),
            {},
            sm_margin()};
  }

  // Of RINGSIDE_SM_MARGIN.
  static int sm_margin() {
    const char* text = std::getenv("RINGSIDE_SM_MARGIN");
    if (text == nullptr || *text == 0) return 0;
    char* end = nullptr;
    const int64_t margin = std::strtol(text, &end, 10);
    require(*end == 0 && margin >= 0 && margin <= INT32_MAX, "RINGSIDE_SM_MARGIN is \"", text,
            "\"; expected how many multiprocessors to leave to other kernels, 0 or more");
    return static_cast<int>(margin);
  }
};

}  // namespace ringside::bindings
