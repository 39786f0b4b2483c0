// PTX as data: a function is a list of instructions whose operands are rows, one cell for each of a
// warp's 32 lanes. Compiler's text becomes this in builder.h, run.h runs it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ringside::ptx {

struct Warp;
struct Inst;

enum class After : uint8_t {
  next,     // the next instruction
  others,   // the next instruction, but other warps may go first
  blocked,  // this one again, later
};
using Handler = After (*)(Warp&, const Inst&);

enum class Slot : uint8_t { none, row, predicate };
enum class Flow : uint8_t { on, branch, call, ret, exit };
// Which lanes have to come to an instruction before it runs.
enum class Together : uint8_t { no, all, members };  // members: of the mask in o[5]

constexpr int32_t kUnguarded = -1;
constexpr uint8_t kWritesList = 64, kReadsList = 128;

// An operand that is a row: its place in units of 128 bytes, or -1 - the place of a constant. One
// that is a predicate: twice its number, one more if negated.
struct Inst {
  Handler run = nullptr;
  int32_t o[6] = {};
  Slot slot[6] = {};
  Flow flow = Flow::on;
  Together together = Together::no;
  uint8_t writes = 1;  // bit k: o[k] is written; kWritesList, kReadsList
  uint16_t list_size = 0;
  int32_t list = 0;  // further rows, in Function::lists
  int32_t guard = kUnguarded;
  uint32_t target = 0;
  uint32_t line = 0;
  int64_t imm = 0, imm2 = 0;
};

enum class Special : uint8_t {
  tid_x,
  tid_y,
  tid_z,
  ntid_x,
  ntid_y,
  ntid_z,
  ctaid_x,
  ctaid_y,
  ctaid_z,
  nctaid_x,
  nctaid_y,
  nctaid_z,
  laneid,
  warpid,
  lanemask_lt,
  grid_high,  // of the words that a grid waits on together
  grid_low,
};

struct Function {
  std::string name, module;
  std::vector<Inst> code;
  std::vector<int32_t> lists;
  std::vector<uint64_t> constants;                    // rows of 128 bytes, 256 for cells of 8
  size_t rows = 0, predicates = 0;                    // of a warp
  std::vector<std::pair<size_t, size_t>> parameters;  // offset, bytes
  std::vector<std::byte> parameter_storage;
  std::span<std::byte> parameter_bytes;  // aligned, where a launch puts them
  size_t static_shared = 0, local_bytes = 0;
  bool waits_for_grid = false;
  std::vector<std::pair<int32_t, Special>> specials;  // rows that hold them

  std::string where(uint32_t line) const;
};

// A kernel of a module, made when first asked for; null where the module has none of this name.
Function* find_kernel(const std::string& module, const std::string& name);
void add_module(const std::string& module, std::string text);

// Ends the process: what a GPU would call an illegal address, or does not know, or goes wrong on.
[[noreturn]] void fail(const std::string& what);
// RINGSIDE_PTX_<name>, a number.
int64_t setting(const char* name, int64_t otherwise);

}  // namespace ringside::ptx
