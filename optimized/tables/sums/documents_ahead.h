// Where items of keys go in a list by document in which the items that begin documents come ahead
// of the others: those of so many documents before all, and one more before each document's others.
#pragma once

#include <cstdint>

#include "reference/support/host_device.h"

namespace ringside {

struct DocumentsAhead {
  int ahead = 0, documents = 0;  // at least 1; all of the list, in whose order they are counted

  // Of the item that begins a document. begins: where each document's items would, were none ahead.
  RINGSIDE_HD int of_first(int document, const int32_t* begins) const {
    return document < ahead ? document : ahead + begins[document - ahead];
  }
  // Of another one of a document, which would be the at-th of the list, behind its first.
  RINGSIDE_HD int of_other(int document, int at) const {
    const int front = ahead < documents ? ahead : documents;
    const int firsts = document + 1 < documents - front ? document + 1 : documents - front;
    return front + firsts + at - (document + 1);
  }
};

}  // namespace ringside
