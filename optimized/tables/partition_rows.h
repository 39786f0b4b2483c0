// What a group of ranks owns of each sequence, for lengths that only the device knows: the closed
// forms of reference/partition as rows. partition_rows_test.cpp holds them against the partitions'
// shards, and against what gathers them.
//
// A group is some neighbouring ranks whose rows lie in one buffer, as a sequence goes on from rank
// to rank: their chunks are neighbours, too, and make one segment. A rank alone is a group of one.
#pragma once

#include "reference/partition/pieces.h"
#include "reference/rows/segment.h"
#include "reference/support/host_device.h"

namespace ringside {

struct PartitionRows {
  PartitionRule rule;
  int cp_size = 1;
  int ranks = 1;  // of a group; divides cp_size

  RINGSIDE_HD int groups() const { return cp_size / ranks; }
  // A group owns at most so many segments of a sequence.
  RINGSIDE_HD int parts() const {
    if (owns_all()) return 1;
    return rule.kind == PartitionKind::striped ? ranks : rule.parts;
  }
  // Whether the packed stream is cut, not each sequence: then a segment's row follows from offsets.
  RINGSIDE_HD bool of_stream() const { return rule.of_stream; }

  // Where a part stands in the group's table of segments, which is in the order of its rows.
  RINGSIDE_HD int index(int seq, int part, int batch) const {
    return of_stream() ? part * batch + seq : seq * parts() + part;
  }

  // A part of what `group` owns of the sequence in rows [begin, end) of `num_rows`; one that is not
  // used is empty. Rows count from the sequence's first in the group or, of a stream, from the
  // group's first.
  RINGSIDE_HD Segment segment(int group, int part, int seq, int begin, int end,
                              int num_rows) const {
    const Pieces own = pieces(of_stream() ? num_rows : end - begin, group, part);
    const int rows = own.rows_of_first();
    if (of_stream())
      return part == 0 ? share_of(own.first, 0, seq, {begin, end})
                       : share_of(own.second, rows, seq, {begin, end});
    if (is_dealt())
      return {seq, own.first.begin, own.stride, dealt(end - begin, group * ranks, part), rows};
    return part == 0 ? Segment{seq, own.first.begin, own.stride, 0, rows}
                     : Segment{seq, own.second.begin, 1, rows, own.second.size()};
  }

  // How many rows all parts have.
  RINGSIDE_HD int rows(int group, int begin, int end, int num_rows) const {
    if (is_dealt()) return dealt(end - begin, group * ranks, ranks);
    const Pieces own = pieces(of_stream() ? num_rows : end - begin, group, 0);
    if (!of_stream()) return own.rows_of_first() + own.second.size();
    return share_of(own.first, 0, 0, {begin, end}).len +
           share_of(own.second, 0, 0, {begin, end}).len;
  }

 private:
  RINGSIDE_HD bool owns_all() const { return ranks == cp_size; }
  // Like cards, and not all of them: each rank's are a part.
  RINGSIDE_HD bool is_dealt() const { return rule.kind == PartitionKind::striped && !owns_all(); }
  // How many of `length` cards go to `count` ranks, `first` and those behind it.
  RINGSIDE_HD int dealt(int length, int first, int count) const {
    const int turns = length / cp_size, last_turn = length % cp_size - first;
    return turns * count + (last_turn < 0 ? 0 : last_turn < count ? last_turn : count);
  }

  // What a group owns of a length. Where cards are dealt, its part-th rank.
  RINGSIDE_HD Pieces pieces(int length, int group, int part) const {
    const int first = group * ranks, last = first + ranks - 1;
    if (owns_all()) return {{0, length}, {}};
    if (is_dealt()) return pieces_of(rule.kind, length, cp_size, first + part);
    Pieces own = pieces_of(rule.kind, length, cp_size, first);
    if (ranks > 1) {  // a run of chunks, and a run of their mirror images
      const Pieces of_last = pieces_of(rule.kind, length, cp_size, last);
      own.first.end = of_last.first.end, own.second.begin = of_last.second.begin;
    }
    if (own.first.end == own.second.begin) own = {{own.first.begin, own.second.end}, {}};
    return own;
  }

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
