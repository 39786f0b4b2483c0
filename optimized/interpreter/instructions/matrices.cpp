// Products of the tensor cores, and what brings their operands.
#include <cstring>

#include "optimized/interpreter/instructions/operations.h"
#include "optimized/interpreter/text/decoders.h"

namespace ringside::ptx {
namespace {

constexpr int kLanes = 32, kDepth = 16;  // of a product's sums

// --- eight by eight 16-bit numbers: lane l holds row l / 4, columns l % 4 * 2 and one more
template <bool Loads, bool Transposed>
After move_matrices(Warp& warp, const Inst& i) {
  const auto* rows = warp.row<uint32_t>(i.o[1]);
  for (int k = 0; k < i.list_size; ++k) {
    auto* cells = warp.row<uint32_t>(warp.list(i)[k]);
    uint16_t matrix[8][8];
    const auto at = [&](int row, int column) -> uint16_t& {
      return Transposed ? matrix[column][row] : matrix[row][column];
    };
    const auto in_memory = [&](int row) {
      return shared_at(warp, i, rows[k * 8 + row] + static_cast<uint32_t>(i.imm), 16);
    };
    if (Loads)
      for (int row = 0; row < 8; ++row) std::memcpy(matrix[row], in_memory(row), 16);
    for (int lane = 0; lane < kLanes; ++lane) {
      uint16_t &low = at(lane / 4, lane % 4 * 2), &high = at(lane / 4, lane % 4 * 2 + 1);
      if (Loads)
        cells[lane] = uint32_t{high} << 16 | low;
      else
        low = static_cast<uint16_t>(cells[lane]), high = static_cast<uint16_t>(cells[lane] >> 16);
    }
    if (!Loads)
      for (int row = 0; row < 8; ++row) std::memcpy(in_memory(row), matrix[row], 16);
  }
  return After::next;
}

void decode_matrices(Builder& b, Inst& i, Statement& s) {
  const bool loads = s.parts[0] == "ldmatrix", transposed = s.has("trans");
  i.together = Together::all;
  i.writes = loads ? kWritesList : kReadsList;
  b.address(i, 1, s.operands.at(loads ? 1 : 0), 4);
  b.list(i, s.operands.at(loads ? 0 : 1), 4);
  if (!s.has("m8n8")) return;
  i.run = loads ? (transposed ? move_matrices<true, true> : move_matrices<true, false>)
                : (transposed ? move_matrices<false, true> : move_matrices<false, false>);
}

// Of 16 rows that lie in registers: which lane of them, and which of its numbers.
template <typename H>
void read_left(const Warp& warp, const int32_t* rows, float (&out)[16][kDepth]) {
  for (int k = 0; k < 4; ++k) {
    const auto* cells = warp.row<uint32_t>(rows[k]);
    for (int lane = 0; lane < kLanes; ++lane)
      for (int half = 0; half < 2; ++half)
        out[lane / 4 + (k & 1) * 8][lane % 4 * 2 + half + (k >> 1) * 8] =
            to_float(H{static_cast<uint16_t>(cells[lane] >> 16 * half)});
  }
}

// Sums of 16 rows: number k of a lane is in its row (k / 2 % 2 * 8 lower), column (k / 4 * 8
// further).
template <int Columns, typename F>
void each_sum(const Warp& warp, const int32_t* rows, int columns, float (&sums)[16][Columns], F f) {
  for (int k = 0; k < columns / 2; ++k) {
    auto* cells = warp.row<float>(rows[k]);
    for (int lane = 0; lane < kLanes; ++lane)
      f(cells[lane], sums[lane / 4 + (k >> 1 & 1) * 8][k / 4 * 8 + lane % 4 * 2 + (k & 1)]);
  }
}

template <int Columns>
void add_products(const float (&left)[16][kDepth], const float (&right)[kDepth][Columns],
                  int columns, float (&sums)[16][Columns]) {
  for (int row = 0; row < 16; ++row)
    for (int k = 0; k < kDepth; ++k)
      for (int column = 0; column < columns; ++column)
        sums[row][column] += left[row][k] * right[k][column];
}

template <typename H>
After mma(Warp& warp, const Inst& i) {  // the list: 4 sums, 4 of the left, 2 of the right, 4 before
  const int32_t* rows = warp.list(i);
  float left[16][kDepth], right[kDepth][8], sums[16][8];
  read_left<H>(warp, rows + 4, left);
  for (int k = 0; k < 2; ++k) {
    const auto* cells = warp.row<uint32_t>(rows[8 + k]);
    for (int lane = 0; lane < kLanes; ++lane)
      for (int half = 0; half < 2; ++half)
        right[lane % 4 * 2 + half + k * 8][lane / 4] =
            to_float(H{static_cast<uint16_t>(cells[lane] >> 16 * half)});
  }
  each_sum(warp, rows + 10, 8, sums, [](float cell, float& sum) { sum = cell; });
  add_products(left, right, 8, sums);
  each_sum(warp, rows, 8, sums, [](float& cell, float sum) { cell = sum; });
  return After::next;
}

void decode_mma(Builder& b, Inst& i, Statement& s) {
  i.together = Together::all;
  i.writes = kWritesList;  // no operand is narrowed
  for (const Operand& operand : s.operands) b.list(i, operand, 4);
  i.writes = kWritesList | kReadsList;
  if (s.parts.at(3) == "m16n8k16" && i.list_size == 14)
    i.run = s.has("bf16") ? mma<BFloat16> : mma<Float16>;
}

// --- a warp group's product: each warp has 16 of its 64 rows
struct Tile {
  uint64_t descriptor;
  int first, rows;
  bool transposed;  // rows of it lie side by side
};

// A digest of a tile in shared memory, in swizzled lines of 128, 64 or 32 bytes, and where it is
// asked for element (row, k) at out[k * rows + row].
template <bool Elements>
uint64_t read_tile(const Warp& warp, const Inst& i, const Tile& tile, uint16_t* out) {
  const auto field = [&](int bit) {
    return static_cast<uint32_t>(tile.descriptor >> bit & 0x3fff) << 4;
  };
  const uint32_t start = field(0), lead = field(16), stride = field(32);
  const auto mode = static_cast<uint32_t>(tile.descriptor >> 62);
  if (mode == 0 || (tile.descriptor >> 49 & 7) != 0)
    fail(warp, i, "a descriptor without swizzle, or with a base offset");
  const uint32_t line = 256u >> mode, bits = (8u >> mode) * 2 - 1;  // 128, 64, 32 bytes; 7, 3, 1
  uint64_t digest = kDigestBegin;
  const auto eight_at = [&](uint32_t offset) {
    const uint32_t at = start + offset;
    return shared_at(warp, i, at ^ (at >> 7 & bits) << 4, 16);
  };
  const auto unsigned_of = [](int x) { return static_cast<uint32_t>(x); };
  const int of_rows = tile.transposed ? 8 : 1, of_depth = tile.transposed ? 1 : 8;
  for (int row = tile.first; row < tile.first + tile.rows; row += of_rows)
    for (int k = 0; k < kDepth; k += of_depth) {
      const uint32_t r = unsigned_of(row), d = unsigned_of(k), wide = line / 2;
      const std::byte* place =
          tile.transposed ? eight_at(r / wide * lead + d / 8 * stride + d % 8 * line + r % wide * 2)
                          : eight_at(r / 8 * stride + r % 8 * line + d * 2);
      uint64_t words[2];
      std::memcpy(words, place, sizeof words);
      digest = digest_with(digest_with(digest, words[0]), words[1]);
      if constexpr (!Elements) continue;
      uint16_t eight[8];
      std::memcpy(eight, place, sizeof eight);
      for (int x = 0; x < 8; ++x) {
        const int to_k = tile.transposed ? k : k + x,
                  to_row = row - tile.first + (tile.transposed ? x : 0);
        out[to_k * tile.rows + to_row] = eight[x];
      }
    }
  return digest;
}

constexpr int kMostColumns = 256;

// The list: sums. o[0]..o[3]: the left operand's registers, or o[0] its descriptor; o[4] the
// right's; o[5] whether to add; imm: columns; imm2: 1 the left, 2 the right transposed.
template <typename H, bool LeftInRegisters>
After wgmma(Warp& warp, const Inst& i) {
  static thread_local uint16_t raw[kDepth * kMostColumns];
  static thread_local float left[16][kDepth], right[kDepth][kMostColumns], sums[16][kMostColumns];
  const auto columns = static_cast<int>(i.imm);
  const auto read = [&](int k, int first, int rows, bool transposed) {
    const Tile tile{warp.row<uint64_t>(i.o[k])[0], first, rows, transposed};
    const uint64_t digest = read_tile<true>(warp, i, tile, raw);
    warp.reads.push_back({digest, tile.descriptor, first, rows, transposed, i.line});
  };
  read(4, 0, columns, (i.imm2 & 2) != 0);
  for (int k = 0; k < kDepth; ++k)
    for (int column = 0; column < columns; ++column)
      right[k][column] = to_float(H{raw[k * columns + column]});
  if constexpr (LeftInRegisters) {
    read_left<H>(warp, i.o, left);
  } else {
    read(0, warp.id % 4 * 16, 16, (i.imm2 & 1) != 0);
    for (int row = 0; row < 16; ++row)
      for (int k = 0; k < kDepth; ++k) left[row][k] = to_float(H{raw[k * 16 + row]});
  }
  const bool adds = (warp.predicate(i.o[5]) & 1) != 0;
  each_sum(warp, warp.list(i), columns, sums,
           [=](float cell, float& sum) { sum = adds ? cell : 0; });
  add_products(left, right, columns, sums);
  each_sum(warp, warp.list(i), columns, sums, [](float& cell, float sum) { cell = sum; });
  return After::next;
}

After commit_products(Warp& warp, const Inst&) {
  warp.read_groups.push_back(std::move(warp.reads));
  warp.reads.clear();
  return After::next;
}

After wait_for_products(Warp& warp, const Inst& i) {
  while (std::ssize(warp.read_groups) > i.imm) {
    for (const ProductRead& read : warp.read_groups.front())
      if (read_tile<false>(warp, i, {read.descriptor, read.first, read.rows, read.transposed},
                           nullptr) != read.digest)
        fail(warp, i,
             "shared memory changed under a product not waited for, of line " +
                 std::to_string(read.line));
    warp.read_groups.pop_front();
  }
  return After::others;
}

void decode_product(Builder& b, Inst& i, Statement& s) {
  const std::string& shape = s.parts.at(4);
  const auto& o = s.operands;
  const bool registers = o.at(1).kind == Operand::Kind::list, bf16 = s.has("bf16");
  i.writes = kWritesList;
  b.list(i, o[0], 4);
  i.writes = kWritesList | kReadsList;
  for (int k = 0; k < (registers ? 4 : 1); ++k)
    registers ? b.row(i, k, o[1].list.at(static_cast<size_t>(k)), 4) : b.row(i, 0, o[1], 8);
  b.row(i, 4, o.at(2), 8);
  b.predicate(i, 5, o.at(3));
  i.imm = 2 * i.list_size;
  i.imm2 = registers ? static_cast<int64_t>(o.at(6).number * 2)
                     : static_cast<int64_t>(o.at(6).number + o.at(7).number * 2);
  if (shape != "m64n" + std::to_string(i.imm) + "k16" || o.at(4).number != 1 || o.at(5).number != 1)
    return;
  i.run = registers ? (bf16 ? wgmma<BFloat16, true> : wgmma<Float16, true>)
                    : (bf16 ? wgmma<BFloat16, false> : wgmma<Float16, false>);
}

void decode_wgmma(Builder& b, Inst& i, Statement& s) {
  i.together = Together::all;
  i.writes = 0;
  if (s.parts.at(1) == "mma_async") return decode_product(b, i, s);
  if (s.parts[1] == "wait_group") {
    i.imm = static_cast<int64_t>(s.operands.at(0).number);
    i.run = wait_for_products;
  }
  if (s.parts[1] == "commit_group") i.run = commit_products;
  if (s.parts[1] == "fence") i.run = [](Warp&, const Inst&) { return After::next; };
}

}  // namespace

Decoders matrix_decoders() {
  return {{"ldmatrix", decode_matrices},
          {"stmatrix", decode_matrices},
          {"mma", decode_mma},
          {"wgmma", decode_wgmma}};
}

}  // namespace ringside::ptx
