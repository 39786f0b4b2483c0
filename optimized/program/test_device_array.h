// Arrays of any element type on the device, between canaries, and how close to float64 their
// values must be: for the tests of what runs there.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "optimized/device/memory.h"
#include "optimized/device/with_type.h"
#include "optimized/exchange/move.h"
#include "reference/attention/oracle.h"
#include "reference/attention/tensor.h"

namespace ringside::testing {

inline bool has_device() {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
}

inline constexpr int kCanary = 256;           // elements on both sides of every array
inline constexpr float kCanaryValue = 12344;  // no result comes near

struct TypeInfo {
  ElementType type;
  const char* name;
  double roundoff;
};
inline constexpr TypeInfo kFloat32{ElementType::float32, "float32", 0x1p-24};
inline constexpr TypeInfo kFloat16{ElementType::float16, "float16", 0x1p-11};
inline constexpr TypeInfo kBFloat16{ElementType::bfloat16, "bfloat16", 0x1p-8};

inline double rounded(double x, ElementType type) {
  return with_type(type, [&](auto element) {
    return static_cast<double>(static_cast<float>(decltype(element)(static_cast<float>(x))));
  });
}

// An array on the device between canaries, in any type.
class Guarded {
 public:
  Guarded(const std::vector<double>& x, ElementType type)
      : type_(type), size_(x.size()), memory_(bytes()) {
    std::vector<std::byte> all(static_cast<size_t>(bytes()));
    with_type(type_, [&](auto element) {
      using T = decltype(element);
      const auto put = [&](size_t i, double value) {
        const T narrow(static_cast<float>(value));
        std::memcpy(all.data() + i * sizeof(T), &narrow, sizeof(T));
      };
      for (size_t i = 0; i < size_ + 2 * kCanary; ++i) put(i, kCanaryValue);
      for (size_t i = 0; i < size_; ++i) put(kCanary + i, x[i]);
    });
    RINGSIDE_CUDA(cudaMemcpy(memory_.data(), all.data(), all.size(), cudaMemcpyHostToDevice));
  }
  Guarded(size_t size, ElementType type) : Guarded(std::vector<double>(size, NAN), type) {}

  void* data() const { return memory_.data() + kCanary * move::bytes_of(type_); }

  std::vector<double> read() const {
    std::vector<std::byte> bytes_read(static_cast<size_t>(bytes()));
    RINGSIDE_CUDA(
        cudaMemcpy(bytes_read.data(), memory_.data(), bytes_read.size(), cudaMemcpyDeviceToHost));
    std::vector<double> all;
    with_type(type_, [&](auto element) {
      for (size_t i = 0; i < size_ + 2 * kCanary; ++i) {
        std::memcpy(&element, bytes_read.data() + i * sizeof(element), sizeof(element));
        all.push_back(static_cast<float>(element));
      }
    });
    for (int i = 0; i < kCanary; ++i) {
      EXPECT_EQ(all[i], rounded(kCanaryValue, type_)) << "written before the array";
      EXPECT_EQ(all[kCanary + size_ + i], rounded(kCanaryValue, type_)) << "written behind it";
    }
    return {all.begin() + kCanary, all.end() - kCanary};
  }

 private:
  int64_t bytes() const {
    return static_cast<int64_t>(size_ + 2 * kCanary) * move::bytes_of(type_);
  }
  ElementType type_;
  size_t size_;
  DeviceMemory memory_;
};

struct OnDevice {  // a [rows, heads, dim] array
  int rows, heads, dim;
  ElementType type;
  Guarded memory;

  OnDevice(const Tensor& x, ElementType t)
      : rows(x.rows), heads(x.heads), dim(x.dim), type(t), memory(x.data, t) {}
  OnDevice(int rows_, int heads_, int dim_, ElementType t)
      : rows(rows_),
        heads(heads_),
        dim(dim_),
        type(t),
        memory(static_cast<size_t>(rows_) * heads_ * dim_, t) {}

  move::GlobalArray array() const {
    return {{memory.data(), int64_t{heads} * dim, dim, rows}, type, heads, dim};
  }
  Tensor read() const {
    Tensor x(rows, heads, dim, 0);
    x.data = memory.read();
    return x;
  }
};

inline double largest(const std::vector<double>& x) {
  double top = 1;
  for (const double value : x)
    if (std::isfinite(value)) top = std::max(top, std::abs(value));
  return top;
}

// float32 rounds at 6e-8; sums of up to some hundred terms and exp of scores of size ~50 stay below
// 2e-6 of the largest value, gradients of several products below 1.6e-5. 16-bit results are rounded
// once more, and so were weights and their gradients before the second product: three roundoffs of
// the largest value, where honest arithmetic comes to 1.7. Any fault of indexing is of order 1.
inline double tolerance(const char* what, const TypeInfo& type, const std::vector<double>& want) {
  const std::string name = what;
  const bool of_scores = name == "lse" || name == "max_logit";
  const bool is_float = of_scores || name == "dsink" || type.type == ElementType::float32;
  const double float32 = 2e-6 * (of_scores ? 2 : 8);
  return largest(want) * (float32 + (is_float ? 0 : 3 * type.roundoff));
}

inline double longest_row(const Tensor& x) {
  double longest = 0;
  for (int row = 0; row < x.rows; ++row)
    for (int head = 0; head < x.heads; ++head) {
      double squares = 0;
      for (int d = 0; d < x.dim; ++d) squares += x.at(row, head)[d] * x.at(row, head)[d];
      if (std::isfinite(squares)) longest = std::max(longest, squares);
    }
  return std::sqrt(longest);
}

// What rounding may do to a score: two roundoffs of all that it is summed from, be the sum itself
// as small as it may, or softcap bend it. Not more than scale |q| |k| is added up. And Hopper's
// kernels may bend it as far as this from where softcap does (attention/hopper/near_softcap.h),
// beside what rounds in units of the cap.
inline constexpr double kSoftcapError = 1e-5, kSoftcapRoundoff = 4e-7;
inline double error_of_scores(const Tensor& q, const Tensor& k, const AttentionOptions& options,
                              std::string_view family) {
  const double bent = family == "hopper" && options.softcap != 0
                          ? kSoftcapError + kSoftcapRoundoff * options.softcap
                          : 0;
  return 1.2e-7 * std::abs(options.softmax_scale) * longest_row(q) * longest_row(k) + bent;
}

inline void expect_close(const char* what, const TypeInfo& type, const std::vector<double>& want,
                         const std::vector<double>& got, double more = 0) {
  ASSERT_EQ(want.size(), got.size()) << what;
  const double allowed = tolerance(what, type, want) + more;
  for (size_t i = 0; i < want.size(); ++i) {
    if (want[i] == got[i] || (std::isnan(want[i]) && std::isnan(got[i]))) continue;  // -inf too
    ASSERT_LE(std::abs(want[i] - got[i]), allowed) << what << "[" << i << "]: " << got[i];
  }
}

}  // namespace ringside::testing
