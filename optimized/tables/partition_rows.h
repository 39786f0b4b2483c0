// What a rank owns of each sequence, in closed form: reference/partition once more, for lengths
// that only the device knows. partition_rows_test.cpp holds one against the other.
#pragma once

#include <cstdint>

#include "reference/host_device.h"
#include "reference/segment.h"

namespace ringside {

enum class PartitionKind : int8_t { contiguous, zigzag, striped, whole_pack, whole_pack_zigzag };

struct PartitionRows {
  PartitionKind kind = PartitionKind::contiguous;
  int cp_size = 1;

  // A rank owns at most so many segments of a sequence.
  RINGSIDE_HD int parts() const {
    return kind == PartitionKind::zigzag || kind == PartitionKind::whole_pack_zigzag ? 2 : 1;
  }
  // Whether the packed stream is cut, not each sequence: then a segment's row follows from offsets.
  RINGSIDE_HD bool of_stream() const {
    return kind == PartitionKind::whole_pack || kind == PartitionKind::whole_pack_zigzag;
  }

  // Where a part stands in the rank's table of segments, which is in the order of its rows.
  RINGSIDE_HD int index(int seq, int part, int batch) const {
    return of_stream() ? part * batch + seq : seq * parts() + part;
  }

  // What `rank` owns of the sequence in rows [begin, end) of `num_rows`; an unused part is empty.
  // Rows count from the sequence's first on the rank or, of a stream, from the rank's first.
  RINGSIDE_HD void segments(int rank, int seq, int begin, int end, int num_rows,
                            Segment (&part)[2]) const {
    const int n = of_stream() ? num_rows : end - begin;
    if (kind == PartitionKind::striped) {
      part[0] = {seq, rank, cp_size, 0, n > rank ? (n - rank - 1) / cp_size + 1 : 0};
      part[1] = {seq, n, 1, part[0].len, 0};
      return;
    }
    const int chunks = cp_size * parts();
    int row = 0;
    for (int p = 0; p < 2; ++p) {
      const int chunk = p == 0 ? rank : chunks - 1 - rank;
      int from = 0, to = 0;
      if (p < parts()) from = cut(n, chunks, chunk), to = cut(n, chunks, chunk + 1);
      part[p] = {seq, from, 1, row, to - from};
      if (of_stream()) {  // the chunk's rows that are this sequence's
        const int first = from > begin ? from : begin, last = to < end ? to : end;
        const int before = first < to ? first - from : to - from;
        part[p] = {seq, first - begin, 1, row + before, last > first ? last - first : 0};
      }
      row += to - from;
    }
    // A sequence's two chunks that meet become one. In a stream other entries stand between them.
    if (!of_stream() && part[0].len > 0 && part[1].len > 0 &&
        part[0].position(part[0].len) == part[1].pos) {
      part[0].len += part[1].len;
      part[1].row += part[1].len;
      part[1].len = 0;
    }
  }

 private:
  RINGSIDE_HD static int cut(int length, int n, int i) {
    const uint64_t product = uint64_t{static_cast<uint32_t>(length)} * static_cast<uint32_t>(i);
    if (product >> 32 == 0)  // devices divide 32 bits much faster
      return static_cast<int>(static_cast<uint32_t>(product) / static_cast<uint32_t>(n));
    return static_cast<int>(product / static_cast<uint32_t>(n));
  }
};

}  // namespace ringside
