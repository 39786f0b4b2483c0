// Kernels of a few lines for the tests: their bodies as text, arrays for their parameters.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "optimized/interpreter/machine/device_memory.h"
#include "optimized/interpreter/machine/run.h"

namespace ringside::ptx::testing {

constexpr uint64_t kAll32 = 0xffffffff, kAll64 = ~uint64_t{0};
constexpr uint64_t kLow32 = 0x80000000, kLow64 = uint64_t{1} << 63;  // the least of signed integers

// Of device memory, its end at a guard page where its bytes are a multiple of 256.
template <typename T>
class Array {
 public:
  explicit Array(const std::vector<T>& values)
      : size_(values.size()), data_(reinterpret_cast<T*>(allocate(size_ * sizeof(T)))) {
    std::memcpy(data_, values.data(), size_ * sizeof(T));
  }
  Array(size_t size, T value) : Array(std::vector<T>(size, value)) {}
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() { release(data_); }

  T* data() const { return data_; }
  T operator[](size_t k) const { return data_[k]; }
  size_t size() const { return size_; }
  uint64_t address() const { return reinterpret_cast<uint64_t>(data_); }
  std::vector<T> values() const { return {data_, data_ + size_}; }

 private:
  size_t size_;
  T* data_;
};

// A body with its parameters p0... in %rd0..., the thread of its block in %tid, the block in %block
// and both as one number in %me; free are %rd10..., %r0..., %rs0..., %p0....
inline std::string kernel_text(const std::string& body, size_t parameters,
                               const std::string& before = "") {
  std::string text = ".version 8.4\n.target sm_90a\n.address_size 64\n" + before;
  text += ".visible .entry kernel(";
  for (size_t k = 0; k < parameters; ++k)
    text += std::string(k == 0 ? "" : ",") + "\n.param .u64 p" + std::to_string(k);
  text += "\n)\n{\n.reg .pred %p<16>;\n.reg .b16 %rs<32>;\n.reg .b32 %r<200>;\n";
  text += ".reg .b64 %rd<64>;\n.reg .b32 %thread, %block, %threads, %me;\n";
  for (size_t k = 0; k < parameters; ++k)
    text += "ld.param.u64 %rd" + std::to_string(k) + ", [p" + std::to_string(k) + "];\n";
  text += "mov.u32 %thread, %tid.x;\nmov.u32 %block, %ctaid.x;\nmov.u32 %threads, %ntid.x;\n";
  text += "mad.lo.s32 %me, %block, %threads, %thread;\n";
  return text + body + "\nret;\n}\n";
}

struct Size {
  unsigned threads = 32, blocks = 1;
  size_t shared = 0;  // dynamic
};

inline void launch_text(const std::string& text, const std::vector<uint64_t>& parameters,
                        Size size = {}) {
  static int launches = 0;
  const std::string module = "test " + std::to_string(++launches);
  add_module(module, text);
  Function* kernel = find_kernel(module, "kernel");
  ASSERT_NE(kernel, nullptr);
  ASSERT_EQ(kernel->parameters.size(), parameters.size());
  for (size_t k = 0; k < parameters.size(); ++k)
    std::memcpy(kernel->parameter_bytes.data() + kernel->parameters[k].first, &parameters[k], 8);
  run({kernel, {size.blocks, 1, 1}, {size.threads, 1, 1}, size.shared});
}

inline void launch(const std::string& body, const std::vector<uint64_t>& parameters, Size size = {},
                   const std::string& before = "") {
  launch_text(kernel_text(body, parameters.size(), before), parameters, size);
}

// Lines by which each thread stores a register of 32 bits in its place of the array at %rd<array>.
inline std::string store_mine(const std::string& from, int array = 0) {
  return "mul.wide.u32 %rd63, %me, 4;\nadd.s64 %rd63, %rd63, %rd" + std::to_string(array) +
         ";\nst.global.b32 [%rd63], " + from + ";\n";
}
inline std::string load_mine(const std::string& to, int array) {
  return "mul.wide.u32 %rd63, %me, 4;\nadd.s64 %rd63, %rd63, %rd" + std::to_string(array) +
         ";\nld.global.b32 " + to + ", [%rd63];\n";
}

// What each thread of such a body leaves in %r0.
inline std::vector<uint32_t> results_of(const std::string& body, Size size = {},
                                        const std::string& before = "") {
  const Array<uint32_t> out(size_t{size.threads} * size.blocks, 0xcccccccc);
  launch(body + store_mine("%r0"), {out.address()}, size, before);
  return out.values();
}

// Operands a, b, c of an instruction and its result d, as bits.
struct Case {
  uint64_t a, b, c, d;
};

// Each case by a thread, all at once. The text has %a4, %b4, %c4 and %d4 of 32 bits, %a2 of 16, %a8
// of 64 and so on.
inline void check(const std::string& text, const std::vector<Case>& cases) {
  int width = 2;
  while (width < 8 && text.find("%d" + std::to_string(width)) == text.npos) width *= 2;
  std::string body = "mul.wide.u32 %rd10, %me, 32;\nadd.s64 %rd10, %rd10, %rd0;\n";
  for (const int bytes : {2, 4, 8}) {
    const std::string w = std::to_string(bytes), bits = std::to_string(bytes * 8);
    for (const std::string name : {"%a", "%b", "%c", "%d"})
      body += ".reg .b" + bits + " " + name + w + ";\nld.global.b" + bits + " " + name + w +
              ", [%rd10+" + std::to_string((name[1] - 'a') * 8) + "];\n";
  }
  body += ".reg .pred %p, %q;\n" + text + "\nst.global.b" + std::to_string(width * 8) +
          " [%rd10+24], %d" + std::to_string(width) + ";\n";
  std::vector<Case> operands = cases;
  for (Case& each : operands) each.d = 0xa5a5a5a5a5a5a5a5;
  const Array<Case> out(operands);
  launch(body, {out.address()}, {static_cast<unsigned>(cases.size())});
  for (size_t k = 0; k < cases.size(); ++k) {
    const uint64_t mask = ~uint64_t{0} >> (64 - 8 * width), want = cases[k].d & mask;
    EXPECT_EQ(out[k].d & mask, want)
        << std::hex << text << ": of " << cases[k].a << ", " << cases[k].b << ", " << cases[k].c
        << " got " << (out[k].d & mask) << ", expected " << want;
  }
}

inline uint64_t bits(float x) { return std::bit_cast<uint32_t>(x); }
inline uint64_t bits(double x) { return std::bit_cast<uint64_t>(x); }

}  // namespace ringside::ptx::testing
