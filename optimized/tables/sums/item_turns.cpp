#include "optimized/tables/sums/item_turns.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>

#include "optimized/tables/build_work_list.h"

namespace ringside {
namespace {

using Document = std::vector<WorkItem>;  // items of one segment of keys, the first keys first

// By the row where the keys begin.
std::map<int, Document> documents_of(const HostWorkList& list) {
  std::map<int, Document> documents;
  for (const WorkItem& item : list.items) documents[item.own.row].push_back(item);
  for (auto& [row, items] : documents) std::ranges::sort(items, {}, &WorkItem::begin);
  return documents;
}

bool has_turns(const HostWorkList& list, const Document& items, int rows) {
  const WorkItem& first = items.front();
  for (size_t i = 0; i < items.size(); ++i) {
    const WorkItem& item = items[i];
    if (item.begin != first.begin + static_cast<int>(i) * rows || item.begin % rows != 0 ||
        item.end - item.begin > rows || item.partner_begin != first.partner_begin ||
        item.partner_end != item.partner_begin + 1 || item.own != first.own)
      return false;
  }
  const Segment& queries = list.partners[first.partner_begin];
  return first.own.stride == 1 && queries.stride == 1 && queries.gap == 0;
}

bool share_queries(const HostWorkList& list, const std::map<int, Document>& documents) {
  std::vector<Segment> partners;
  for (const auto& [row, items] : documents)
    partners.push_back(list.partners[items.front().partner_begin]);
  std::ranges::sort(partners, {}, &Segment::row);
  for (size_t i = 1; i < partners.size(); ++i)
    if (partners[i].row < partners[i - 1].row_end()) return true;
  return false;
}

struct Place {
  int64_t weight;  // of the item, or of the longest behind it in its document
  const WorkItem* item;
};

}  // namespace

std::vector<WorkItem> items_in_turn(const HostWorkList& list, const Mask& mask, int rows) {
  const std::map<int, Document> documents = documents_of(list);
  const auto all_have = [&](const auto& document) {
    return has_turns(list, document.second, rows);
  };
  if (!std::ranges::all_of(documents, all_have) || share_queries(list, documents)) return {};
  std::vector<Place> places;
  for (const auto& [row, items] : documents) {
    const size_t first = places.size();
    for (const WorkItem& item : items) {
      const int64_t met = queries_met(list, mask, item).size();
      places.push_back({met * (item.end - item.begin), &item});
    }
    for (size_t i = places.size() - 1; i > first; --i)
      places[i - 1].weight = std::max(places[i - 1].weight, places[i].weight);
  }
  // Of equal ones, first those that wait for none.
  std::ranges::stable_sort(places, [](const Place& a, const Place& b) {
    return std::tuple(-a.weight, a.item->begin) < std::tuple(-b.weight, b.item->begin);
  });
  std::vector<WorkItem> items;
  for (const Place& place : places) items.push_back(*place.item);
  return items;
}

}  // namespace ringside
