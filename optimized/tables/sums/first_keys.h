// In which order items of keys are taken where the item that begins a document's keys stores what
// it has of dq, and the document's others add to it: dq then need not begin as zeros. Who adds
// waits for who stores, and nobody for long, if that one began well before.
#pragma once

#include "optimized/tables/build_work_list.h"

namespace ringside {

// Of how many documents these items come before all others, of a queue for so many heads side by
// side; and whether, of such a mask, queries see a document's first keys that see any.
int documents_ahead(int heads, int processors);
bool first_keys_see_all(const Mask& mask);

// Puts these items ahead in a list by document that goes through a queue for so many heads side by
// side: before a document's others are taken, those of the documents to come that keep the
// processors busy meanwhile. False, and nothing is changed, where the list is another, where a
// document's first keys are not seen by all queries that see others, where there are too few
// documents, or where the longest one's first item takes longer than that.
bool put_first_keys_ahead(HostWorkList& keys, const Mask& mask, int heads, int processors);

}  // namespace ringside
