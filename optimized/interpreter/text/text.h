// The compiler's text: where its kernels and functions begin, and its words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ringside::ptx {

struct SharedArray {
  size_t bytes, align;
  bool dynamic;  // its size is the launch's
};

struct Module {
  std::string name, text;
  std::map<std::string, size_t> zeros;  // bytes of arrays in global memory that begin as zeros
  std::map<std::string, size_t> kernels, functions;  // where they begin
  std::map<std::string, SharedArray> shared;         // outside of kernels

  Module(std::string module_name, std::string module_text);
};

struct Word {
  std::string_view text;
  uint32_t line;
};

// Of the kernel or function that begins there, to its last brace.
std::vector<Word> words_of(const Module& module, size_t begin);

bool is_digit(char c);
std::vector<std::string> split(std::string_view text, char by);
uint64_t to_number(std::string_view text);  // decimal, hexadecimal, or a float's bits

// Bytes of a type by its name without the dot; 0: a predicate.
int width_of(std::string_view type);

}  // namespace ringside::ptx
