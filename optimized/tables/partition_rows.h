// What a rank owns of each sequence, for lengths that only the device knows: the closed forms of
// reference/partition as rows. partition_rows_test.cpp holds them against the partitions' shards.
#pragma once

#include "reference/partition/pieces.h"
#include "reference/rows/segment.h"
#include "reference/support/host_device.h"

namespace ringside {

struct PartitionRows {
  PartitionRule rule;
  int cp_size = 1;

  // A rank owns at most so many segments of a sequence.
  RINGSIDE_HD int parts() const { return rule.parts; }
  // Whether the packed stream is cut, not each sequence: then a segment's row follows from offsets.
  RINGSIDE_HD bool of_stream() const { return rule.of_stream; }

  // Where a part stands in the rank's table of segments, which is in the order of its rows.
  RINGSIDE_HD int index(int seq, int part, int batch) const {
    return of_stream() ? part * batch + seq : seq * parts() + part;
  }

  // What `rank` owns of the sequence in rows [begin, end) of `num_rows`; an unused part is empty.
  // Rows count from the sequence's first on the rank or, of a stream, from the rank's first.
  RINGSIDE_HD void segments(int rank, int seq, int begin, int end, int num_rows,
                            Segment (&part)[2]) const {
    const Pieces own = pieces_of(rule.kind, of_stream() ? num_rows : end - begin, cp_size, rank);
    const int rows = own.rows_of_first();
    if (of_stream()) {
      part[0] = share_of(own.first, 0, seq, {begin, end});
      part[1] = share_of(own.second, rows, seq, {begin, end});
      return;
    }
    part[0] = {seq, own.first.begin, own.stride, 0, rows};
    part[1] = {seq, own.second.begin, 1, rows, own.second.size()};
    // A sequence's two chunks that meet become one. In a stream other entries stand between them.
    if (part[0].len > 0 && part[1].len > 0 && part[0].position(part[0].len) == part[1].pos) {
      part[0].len += part[1].len;
      part[1].row += part[1].len;
      part[1].len = 0;
    }
  }

 private:
  // The rows of a piece of the stream, which begins at row `row` of the rank, that are a
  // sequence's.
  RINGSIDE_HD static Segment share_of(Interval piece, int row, int seq, Interval sequence) {
    const int first = piece.begin > sequence.begin ? piece.begin : sequence.begin;
    const int last = piece.end < sequence.end ? piece.end : sequence.end;
    const int before = first < piece.end ? first - piece.begin : piece.size();
    return {seq, first - sequence.begin, 1, row + before, last > first ? last - first : 0};
  }
};

}  // namespace ringside
