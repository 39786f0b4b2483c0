// Variables that are never of use at once share a row: what the compiler names is thousands, what
// lives at once some hundred.
#include <algorithm>
#include <set>
#include <tuple>

#include "optimized/interpreter/text/decoders.h"

namespace ringside::ptx {

class RowAllocator {
 public:
  explicit RowAllocator(Builder& builder)
      : f_(builder.function_),
        widths_(builder.widths_),
        words_((widths_.size() + 63) / 64),
        kept_(widths_.size()),
        first_(widths_.size(), kNever),
        last_(widths_.size()) {
    for (const auto& [row, which] : f_.specials) keep(row);
    auto kernel_end = static_cast<uint32_t>(f_.code.size());
    for (const auto& [name, callee] : builder.callees_) {
      kernel_end = std::min(kernel_end, callee.begin);
      for (const Variable& parameter : callee.parameters) keep(parameter.id);
    }
    for (uint32_t at = kernel_end; at < f_.code.size();
         ++at)  // of callees: wherever they are called
      each_variable(f_.code[at], [&](int32_t v, bool, bool) { keep(v); });
  }

  void allocate() {
    find_blocks();
    find_live();
    find_intervals();
    give_rows();
  }

 private:
  using Bits = std::vector<uint64_t>;
  static constexpr uint32_t kNever = ~0u;

  void keep(int32_t v) { kept_[static_cast<size_t>(v)] = true; }

  // f(variable, is read, is written); what is written only sometimes stays of use before.
  template <typename F>
  void each_variable(const Inst& i, F f) const {
    const bool sometimes = i.guard != kUnguarded;
    const auto see = [&](int32_t v, bool read, bool written) {
      if (v >= 0) f(v, read || (written && sometimes), written);
    };
    const bool reads = (i.writes & kReadsList) != 0, writes = (i.writes & kWritesList) != 0;
    const bool both_in_turn = reads && writes && i.list_size == 14;  // mma: 4 written, 10 read
    for (int k = 0; k < i.list_size; ++k) {
      const int32_t v = f_.lists[static_cast<size_t>(i.list + k)];
      see(v, both_in_turn ? k >= 4 : reads, both_in_turn ? k < 4 : writes);
    }
    for (int k = 0; k < 6; ++k) {
      const bool written = (i.writes >> k & 1) != 0;
      if (i.slot[k] == Slot::row) see(i.o[k], !written, written);
    }
  }

  void find_blocks() {
    const auto size = static_cast<uint32_t>(f_.code.size());
    std::set<uint32_t> begins{0};
    for (uint32_t at = 0; at < size; ++at) {
      const Inst& i = f_.code[at];
      if (i.flow == Flow::on) continue;
      begins.insert(at + 1);
      if (i.flow == Flow::branch || i.flow == Flow::call) begins.insert(i.target);
    }
    begins.erase(size);
    begins_.assign(begins.begin(), begins.end());
    begins_.push_back(size);
  }
  size_t blocks() const { return begins_.size() - 1; }
  size_t block_of(uint32_t at) const {
    return static_cast<size_t>(std::upper_bound(begins_.begin(), begins_.end(), at) -
                               begins_.begin() - 1);
  }
  std::vector<size_t> blocks_after(size_t block) const {
    std::vector<size_t> after;
    const Inst& last = f_.code[begins_[block + 1] - 1];
    if (last.flow == Flow::branch) after.push_back(block_of(last.target));
    const bool goes_on =
        last.flow == Flow::on || last.flow == Flow::call || last.guard != kUnguarded;
    if (goes_on && block + 1 < blocks()) after.push_back(block + 1);
    return after;
  }

  static bool holds(const Bits& bits, size_t v) { return (bits[v / 64] >> v % 64 & 1) != 0; }
  static void put(Bits& bits, size_t v) { bits[v / 64] |= uint64_t{1} << v % 64; }

  void find_live() {
    in_.assign(blocks(), Bits(words_));
    out_.assign(blocks(), Bits(words_));
    std::vector<Bits> written(blocks(), Bits(words_));
    std::vector<std::vector<size_t>> after;
    for (size_t block = 0; block < blocks(); ++block) {
      after.push_back(blocks_after(block));
      for (uint32_t at = begins_[block]; at < begins_[block + 1]; ++at) {
        each_variable(f_.code[at], [&](int32_t v, bool read, bool) {
          if (read && !holds(written[block], static_cast<size_t>(v)))
            put(in_[block], static_cast<size_t>(v));
        });
        each_variable(f_.code[at], [&](int32_t v, bool, bool writes) {
          if (writes) put(written[block], static_cast<size_t>(v));
        });
      }
    }
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t block = blocks(); block-- > 0;)
        for (size_t word = 0; word < words_; ++word) {
          uint64_t behind = 0;
          for (const size_t next : after[block]) behind |= in_[next][word];
          out_[block][word] = behind;
          const uint64_t before = in_[block][word] | (behind & ~written[block][word]);
          changed |= before != in_[block][word];
          in_[block][word] = before;
        }
    }
  }

  void extend(size_t v, uint32_t to) {
    first_[v] = std::min(first_[v], to);
    last_[v] = std::max(last_[v], to);
  }
  void find_intervals() {
    for (size_t block = 0; block < blocks(); ++block) {
      for (size_t v = 0; v < widths_.size(); ++v) {
        if (holds(in_[block], v)) extend(v, begins_[block]);
        if (holds(out_[block], v)) extend(v, begins_[block + 1]);
      }
      for (uint32_t at = begins_[block]; at < begins_[block + 1]; ++at)
        each_variable(f_.code[at],
                      [&](int32_t v, bool, bool) { extend(static_cast<size_t>(v), at); });
    }
    for (size_t v = 0; v < widths_.size(); ++v)
      if (kept_[v]) first_[v] = 0, last_[v] = kNever;
  }

  void give_rows() {
    std::vector<size_t> order;
    for (size_t v = 0; v < widths_.size(); ++v)
      if (first_[v] != kNever) order.push_back(v);
    std::sort(order.begin(), order.end(),
              [&](size_t a, size_t b) { return first_[a] < first_[b]; });
    std::vector<int32_t> row(widths_.size()), idle[2];    // by units
    std::set<std::tuple<uint32_t, int32_t, bool>> taken;  // until, which, wide
    int32_t end = 0;
    for (const size_t v : order) {
      while (!taken.empty() && std::get<0>(*taken.begin()) < first_[v]) {
        idle[std::get<2>(*taken.begin())].push_back(std::get<1>(*taken.begin()));
        taken.erase(taken.begin());
      }
      const bool wide = widths_[v] == 8;
      if (idle[wide].empty()) {
        row[v] = end;
        end += wide ? 2 : 1;
      } else {
        row[v] = idle[wide].back();
        idle[wide].pop_back();
      }
      taken.emplace(last_[v], row[v], wide);
    }
    f_.rows = static_cast<size_t>(end);
    const auto place = [&](int32_t& v) {
      if (v >= 0) v = row[static_cast<size_t>(v)];
    };
    for (Inst& i : f_.code)
      for (int k = 0; k < 6; ++k)
        if (i.slot[k] == Slot::row) place(i.o[k]);
    for (int32_t& v : f_.lists) place(v);
    for (auto& [v, which] : f_.specials) place(v);
  }

  Function& f_;
  const std::vector<int>& widths_;
  size_t words_;
  std::vector<bool> kept_;
  std::vector<uint32_t> first_, last_, begins_;
  std::vector<Bits> in_, out_;  // of use before and behind each block
};

void allocate_rows(Builder& builder) { RowAllocator(builder).allocate(); }

}  // namespace ringside::ptx
