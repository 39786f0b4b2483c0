#include "optimized/tables/sums/first_keys.h"

#include <algorithm>
#include <span>
#include <utility>

#include "optimized/tables/sums/documents_ahead.h"

namespace ringside {
namespace {

using Items = std::span<const WorkItem>;

// Runs of items of one document.
std::vector<Items> runs_of_documents(const HostWorkList& keys) {
  std::vector<Items> found;
  const std::vector<WorkItem>& items = keys.items;
  for (size_t begin = 0, end = 0; begin < items.size(); begin = end) {
    while (end < items.size() && items[end].own.seq == items[begin].own.seq) ++end;
    found.emplace_back(&items[begin], end - begin);
  }
  return found;
}

// The item of a document that begins its keys, if no other meets rows that it does not, or rows
// elsewhere; else null.
const WorkItem* first_of(const HostWorkList& keys, const Mask& mask, Items document) {
  const auto first = std::ranges::find(document, 0, &WorkItem::begin);
  if (first == document.end()) return nullptr;
  const Interval all = queries_met(keys, mask, *first);
  const bool has_all = std::ranges::all_of(document, [&](const WorkItem& item) {
    const Interval rows = queries_met(keys, mask, item);
    return item.own == first->own && item.partner_begin == first->partner_begin &&
           item.partner_end == item.partner_begin + 1 && all.begin <= rows.begin &&
           rows.end <= all.end;
  });
  return has_all ? &*first : nullptr;
}

}  // namespace

bool first_keys_see_all(const Mask& mask) { return mask.left == kUnbounded && mask.chunk == 0; }

int documents_ahead(int heads, int processors) {
  constexpr double kLead = 1.5;  // first items for each processor, ahead of a document's others
  return static_cast<int>(kLead * processors / heads) + 1;
}

bool put_first_keys_ahead(HostWorkList& keys, const Mask& mask, int heads, int processors) {
  constexpr double kLongest = 1.5;  // times what the others of these take
  if (keys.order != ItemOrder::by_document || heads <= 0) return false;
  const std::vector<Items> documents = runs_of_documents(keys);
  const auto ahead = static_cast<size_t>(documents_ahead(heads, processors));
  if (documents.size() < ahead) return false;
  std::vector<const WorkItem*> firsts;
  int64_t rows = 0, longest = 0;  // of those that begin the list
  for (const Items& document : documents) {
    firsts.push_back(first_of(keys, mask, document));
    if (firsts.back() == nullptr) return false;
    const int64_t met = queries_met(keys, mask, *firsts.back()).size();
    longest = std::max(longest, met);
    if (firsts.size() <= ahead) rows += met;
  }
  if (double(longest) * double(ahead) > kLongest * double(rows)) return false;

  const DocumentsAhead order{static_cast<int>(ahead), static_cast<int>(documents.size())};
  std::vector<WorkItem> ordered(keys.items.size());
  std::vector<int32_t> begins;
  int at = 0;
  for (int d = 0; d < order.documents; ++d) {
    begins.push_back(at++);
    ordered[order.of_first(d, begins.data())] = *firsts[d];
    for (const WorkItem& item : documents[d])
      if (&item != firsts[d]) ordered[order.of_other(d, at++)] = item;
  }
  keys.items = std::move(ordered);
  return true;
}

}  // namespace ringside
