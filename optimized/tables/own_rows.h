// Of lengths that only the device knows, what a rank that has arrays of its own reads: which of its
// rows are tokens, cut out of the maps of all ranks; and a word by which ranks tell lengths apart.
// Every function fills one entry, on the host or on the device.
#pragma once

#include "optimized/tables/length_tables.h"
#include "optimized/tables/unseen_rows.h"

namespace ringside {

// The layouts that tables were filled from, as somebody has checked them.
RINGSIDE_HD inline UnseenRows unseen_rows_of(const LengthTables& t) {
  const auto layout = [&](const LengthTables::Side& x) {
    return DeviceLayout{{x.cu_seqlens, t.max_batch + 1, false},
                        {x.cu_seqlens_padded, t.max_batch + 1, false},
                        x.max_rows};
  };
  return {layout(t.q), layout(t.k), t.mask};
}

struct OwnRows {  // of one operand of a rank; [rows of its home] each
  Operand side = Operand::q;
  int rank = 0;
  int32_t *global_of_home = nullptr, *home_of_global = nullptr;  // of its own array, not of all
  int32_t* seeing = nullptr;  // of q: global_of_home, with padding for tokens that see nothing

  RINGSIDE_HD void fill(const LengthTables& t, int row) const {
    const LengthTables::Side& x = t.side(side);
    const int global = x.global_of_home[x.home_row_of_rank[rank] + row];
    global_of_home[row] = global == kNobody ? kNobody : is_token(global) ? row : padding_row(row);
    home_of_global[row] = global == kNobody ? kNobody : row;
    if (seeing == nullptr) return;
    const bool sees = is_token(global) && !unseen_rows_of(t).query(global);
    seeing[row] = global == kNobody ? kNobody : sees ? row : padding_row(row);
  }
};

// The sum over all entries is the word: in any order, and alike only where all entries are, but for
// one case in 2^64.
struct LengthsWord {
  RINGSIDE_HD static int entries(const LengthTables& t) { return 4 * (t.max_batch + 1); }
  RINGSIDE_HD static uint64_t of_entry(const LengthTables& t, int entry) {
    const int32_t* arrays[] = {t.q.cu_seqlens, t.q.cu_seqlens_padded, t.k.cu_seqlens,
                               t.k.cu_seqlens_padded};
    const int size = t.max_batch + 1;
    const auto value = static_cast<uint32_t>(arrays[entry / size][entry % size]);
    return mixed(mixed(static_cast<uint64_t>(entry) + 1) + value);
  }

 private:
  RINGSIDE_HD static uint64_t mixed(uint64_t x) {  // splitmix64
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
  }
};

}  // namespace ringside
