#include "optimized/tables/build_work_list.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "reference/rows/seen_rows.h"
#include "reference/support/errors.h"

namespace ringside {
namespace {

Segment part_of(const Segment& s, int begin, int len) {
  return {s.seq, s.position(begin), s.stride, s.row + begin, len};
}

Segment shifted(Segment s, int rows) {
  s.row += rows;
  return s;
}

struct Piece {  // rows that every tile names together or not at all
  Segment own;
  std::vector<Segment> partners;
};

// Cuts the own segments of all tiles at each other's ends.
std::vector<Piece> pieces_of(const RankTiles& rank, Operand side) {
  std::set<int> cuts;
  for (const Tile& tile : *rank.tiles) {
    const Segment& own = side == Operand::q ? tile.q : tile.k;
    cuts.insert({own.row, own.row_end()});
  }
  std::map<int, Piece> by_row;
  for (const Tile& tile : *rank.tiles) {
    const auto& [own, partner] =
        side == Operand::q ? std::tie(tile.q, tile.k) : std::tie(tile.k, tile.q);
    const int own_row = side == Operand::q ? rank.q_row : rank.k_row;
    const int partner_row = side == Operand::q ? rank.k_row : rank.q_row;
    for (auto cut = cuts.find(own.row); *cut < own.row_end();) {
      const int begin = *cut, end = *++cut;
      Piece& piece = by_row[begin];
      piece.own = shifted(part_of(own, begin - own.row, end - begin), own_row);
      piece.partners.push_back(shifted(partner, partner_row));
    }
  }
  std::vector<Piece> pieces;
  for (auto& [row, piece] : by_row) pieces.push_back(std::move(piece));
  return pieces;
}

void join_own(const Problem& problem, int rows_of_item, std::vector<Piece>& pieces) {
  size_t kept = 0;
  for (size_t i = 1; i < pieces.size(); ++i) {
    const Segment &a = pieces[kept].own, &b = pieces[i].own;
    if (can_join(a, b) && pieces[kept].partners == pieces[i].partners &&
        spares_blocks(a, b, problem.layout_q.len(a.seq), rows_of_item))
      pieces[kept].own = joined(a, b);
    else if (++kept != i)
      pieces[kept] = std::move(pieces[i]);
  }
  if (!pieces.empty()) pieces.resize(kept + 1);
}

// Queries that a piece of keys meets.
void join_partners(Piece& piece) {
  std::vector<Segment> kept;
  for (const Segment& partner : piece.partners) {
    if (!kept.empty() && can_join(kept.back(), partner))
      kept.back() = joined(kept.back(), partner);
    else
      kept.push_back(partner);
  }
  piece.partners = std::move(kept);
}

// Rows of partners that the block meets.
int64_t length_of(const SequenceMask& mask, Operand side, const Piece& piece,
                  const WorkItem& item) {
  int64_t rows = 0;
  for (const Segment& partner : piece.partners)
    rows += side == Operand::q
                ? keys_seen(mask, partner, item.own, item.begin, item.end).size()
                : queries_seeing(mask, partner, item.own, item.begin, item.end).size();
  return rows;
}

struct WeighedItem {
  int64_t weight = 0;
  WorkItem item;
  int rank = 0;  // of those given

  std::pair<int, int> document() const { return {rank, item.own.seq}; }
  int64_t rows_met() const { return weight / (item.end - item.begin); }
};

// Those of a document go where its first one is, in the order that they have. False: a document has
// half of the work, and they stay where they are.
bool sort_by_document(std::vector<WeighedItem>& items, int64_t work) {
  std::map<std::pair<int, int>, size_t> number;  // of a document
  std::vector<std::vector<WeighedItem>> documents;
  std::vector<int64_t> weights;
  for (const WeighedItem& weighed : items) {
    const auto [found, is_new] = number.emplace(weighed.document(), documents.size());
    if (is_new) documents.emplace_back(), weights.push_back(0);
    documents[found->second].push_back(weighed);
    weights[found->second] += weighed.weight;
  }
  if (2 * *std::ranges::max_element(weights) >= work) return false;
  items.clear();
  for (const auto& document : documents)
    items.insert(items.end(), document.begin(), document.end());
  return true;
}

void add_items(const Problem& problem, Operand side, const Piece& piece, int rows_of_item, int rank,
               HostWorkList& list, std::vector<WeighedItem>& items) {
  const int seq = piece.own.seq;
  const SequenceMask mask{problem.mask, problem.layout_q.len(seq), problem.layout_k.len(seq)};
  const int valid = piece.own.rows_below(side == Operand::q ? mask.len_q : mask.len_k);
  const int first = static_cast<int>(list.partners.size());
  const int last = first + static_cast<int>(piece.partners.size());
  bool any = false;
  for (int begin = 0; begin < valid; begin += rows_of_item) {
    const WorkItem item{piece.own,  begin,     std::min(begin + rows_of_item, valid), first, last,
                        mask.len_q, mask.len_k};
    const int64_t length = length_of(mask, side, piece, item);
    if (length == 0) continue;
    const Segment& own = item.own;  // kernels leave out what is not sound, or wait for it
    require(is_sound(item), "a tile's ", side == Operand::q ? "query" : "key",
            " segment has seq=", own.seq, ", pos=", own.pos, ", stride=", own.stride,
            ", row=", own.row, ", len=", own.len,
            "; expected stride and len of at least 1, the others not negative. verify() the plan");
    items.push_back({length * (item.end - item.begin), item, rank});
    any = true;
  }
  if (any) list.partners.insert(list.partners.end(), piece.partners.begin(), piece.partners.end());
}

// Whether most items of a document meet other numbers of rows than each other: of a causal mask all
// do, and none where all rows are met, or as many of a window.
bool meet_in_part(const std::vector<WeighedItem>& items) {
  std::map<std::pair<int, int>, std::set<int64_t>> rows;  // of a document
  for (const WeighedItem& weighed : items) rows[weighed.document()].insert(weighed.rows_met());
  size_t numbers = 0;
  for (const auto& [document, of_document] : rows) numbers += of_document.size() - 1;
  return 2 * numbers > items.size() - rows.size();
}

HostWorkList build(const Problem& problem, const std::vector<RankTiles>& ranks, int rows_of_item,
                   Operand side, ItemOrder order, Neighbours queries) {
  constexpr double kNearly = 1.25;  // of the mean
  HostWorkList list;
  std::vector<WeighedItem> items;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    std::vector<Piece> pieces = pieces_of(ranks[rank], side);
    if (queries == Neighbours::joined && side == Operand::q)
      join_own(problem, rows_of_item, pieces);
    for (Piece& piece : pieces) {
      if (queries == Neighbours::joined && side == Operand::kv) join_partners(piece);
      add_items(problem, side, piece, rows_of_item, static_cast<int>(rank), list, items);
    }
  }
  std::ranges::stable_sort(items, std::greater{}, &WeighedItem::weight);
  int64_t work = 0, before = 0;
  for (const WeighedItem& weighed : items) work += weighed.weight;
  if (!items.empty()) list.longest_share = double(items[0].weight) / double(work);
  list.is_even = list.longest_share * double(items.size()) < kNearly;
  for (const WeighedItem& weighed : items) {
    const int64_t met = weighed.rows_met();
    if (2 * before < work) list.rows_met = met;
    list.most_rows_met = std::max(list.most_rows_met, static_cast<int>(met));
    before += weighed.weight;
  }
  if (side == Operand::kv) list.in_part = meet_in_part(items);
  if (order == ItemOrder::by_document && !items.empty() && sort_by_document(items, work))
    list.order = order;
  for (const WeighedItem& weighed : items) list.items.push_back(weighed.item);
  return list;
}

}  // namespace

Interval queries_met(const HostWorkList& list, const Mask& mask, const WorkItem& item) {
  const SequenceMask of_sequence{mask, item.len_q, item.len_k};
  return queries_seeing(of_sequence, list.partners[item.partner_begin], item.own, item.begin,
                        item.end);
}

bool one_item_a_sequence(const HostWorkList& list) {
  std::set<int> sequences;
  for (const WorkItem& item : list.items)
    if (!sequences.insert(item.own.seq).second) return false;
  return true;
}

HostWorkList query_items(const Problem& problem, const std::vector<RankTiles>& ranks,
                         int rows_of_item, ItemOrder order, Neighbours queries) {
  return build(problem, ranks, rows_of_item, Operand::q, order, queries);
}

HostWorkList key_items(const Problem& problem, const std::vector<RankTiles>& ranks,
                       int rows_of_item, ItemOrder order, Neighbours queries) {
  return build(problem, ranks, rows_of_item, Operand::kv, order, queries);
}

}  // namespace ringside
