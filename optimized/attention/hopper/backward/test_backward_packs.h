// The packs that the instances of the backward kernel are put to: documents around its blocks,
// every kind of mask, grouped heads, padded columns, partners in pieces, every way to leave
// results.
#pragma once

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "optimized/attention/hopper/backward/test_backward_definition.h"

namespace ringside::hopper::testing {

// Of an instance: the head dimensions that it is compiled for, and shorter rows that are its own.
struct Instance {
  int qk, v, shorter_qk, shorter_v;
  int keys;   // of an item
  int whole;  // of one that is all that its queries meet
};

inline std::vector<Pack> packs(const Instance& of) {
  const std::vector<Lengths> same{{1, 1},     {63, 63},   {64, 64},   {65, 65},
                                  {127, 127}, {128, 128}, {129, 129}, {300, 300}};
  const std::vector<Lengths> apart{{100, 300}, {300, 100}, {1, 200}, {200, 1}, {0, 50}, {130, 129}};
  const std::vector<Lengths> alone{
      {1, 1}, {63, 63}, {of.keys - 28, of.keys - 28}, {of.keys, of.keys}};
  std::vector<Lengths> carried{{1, 1}, {of.whole, of.whole}, {of.whole, 1}, {1, of.whole}};
  for (const Lengths& d : {Lengths{129, 129}, {130, 256}, {257, 200}, {450, 140}})
    carried.push_back({d.q, std::min(d.k, of.whole)});
  const Mask causal = Mask::causal(), full = Mask::full();
  const Mask last = Mask::causal(Align::bottom_right);
  const Mask window = Mask::sliding_window(33, 17, Align::bottom_right);
  const int qk = of.qk, v = of.v, one_piece = 1 << 20;
  const Accumulate only = Accumulate::only;
  const bool has_turns = of.qk <= 128, may_round = has_turns && of.qk > 64;
  std::vector<Pack> in_turn;
  const std::vector<Lengths> long_ones{{700, 700}, {600, 900}, {900, 600}, {300, 300}, {5, 700}};
  for (const auto& [mask, kv_heads] : {std::pair{causal, 2},
                                       {full, 1},
                                       {last, 1},
                                       {Mask::sliding_window(150, 70, Align::bottom_right), 2},
                                       {Mask::chunked(200), 1}})
    for (const bool rounds : {false, true})
      if (may_round || !rounds)
        in_turn.push_back({rounds ? "in turn, the last one rounds" : "in turn", long_ones, mask, qk,
                           v, 2, kv_heads, only, one_piece, false, 1, true, rounds});
  const std::vector<Lengths> of_one_block{{5, 16 * of.keys}};
  std::vector<Lengths> more_behind = of_one_block;
  more_behind.resize(9, {200, 2});  // of less to do
  // Of a block each, some of which a processor may have; and with items of several behind them.
  for (const bool rounds : {false, true})
    for (const bool more : {false, true})
      if (may_round || !rounds)
        in_turn.push_back(
            {rounds ? "in turn, one block each, the last one rounds" : "in turn, one block each",
             more ? more_behind : of_one_block, full, qk, v, 1, 1, only, one_piece, false, 1, true,
             rounds});
  std::vector<Pack> all = {
      {"causal", same, causal, qk, v},
      {"full, a head of its own each", same, full, qk, v, 2, 2},
      {"causal from the last", apart, last, qk, v},
      {"causal of other lengths", apart, causal, qk, v},
      {"a window", apart, window, qk, v},
      {"chunks", same, Mask::chunked(100), qk, v},
      {"queries in pieces", same, causal, qk, v, 2, 1, only, 50},
      {"columns that are not there", same, causal, of.shorter_qk, of.shorter_v, 3, 3},
      {"added to what is there", same, causal, qk, v, 2, 1, Accumulate::merge},
      {"heads in parts", apart, last, qk, v, 7, 1, Accumulate::merge, one_piece, false, 4},
      {"more parts than heads", same, causal, qk, v, 4, 2, Accumulate::merge, 50, false, 3},
      {"the first step", same, causal, qk, v, 2, 1, Accumulate::start},
      {"dq final at once", alone, causal, qk, v, 4, 2, only, one_piece, true},
      {"dq carried, causal", carried, causal, qk, v, 4, 2, only, one_piece, true},
      {"dq carried, causal from the last", carried, last, qk, v, 2, 2, only, one_piece, true},
      {"dq carried, full", carried, full, of.shorter_qk, v, 2, 1, only, one_piece, true},
      {"dq carried, a window", carried, window, qk, v, 2, 2, only, one_piece, true},
      {"dq carried, chunks", carried, Mask::chunked(70), qk, v, 3, 1, only, one_piece, true},
      {"more items than processors", std::vector<Lengths>(24, {70, 70}), causal, qk, v, 8, 8},
  };
  for (const Accumulate accumulate : {Accumulate::start, Accumulate::merge}) {
    all.push_back({.name = "some are final",
                   .documents = apart,
                   .mask = causal,
                   .dim_qk = qk,
                   .dim_v = v,
                   .kv_heads = 2,
                   .accumulate = accumulate,
                   .some_final = true});
    // Items of one block, one behind the other.
    all.push_back({.name = "some of many short ones are final",
                   .documents = std::vector<Lengths>(40, {50, 50}),
                   .mask = causal,
                   .dim_qk = qk,
                   .dim_v = v,
                   .heads = 8,
                   .kv_heads = 8,
                   .accumulate = accumulate,
                   .some_final = true});
  }
  if (has_turns) all.insert(all.end(), in_turn.begin(), in_turn.end());
  return all;
}

// Those of which dq have the same bits from call to call, of documents that end within a block.
inline std::vector<Pack> packs_of_same_bits(const Instance& of) {
  const Mask causal = Mask::causal(), last = Mask::causal(Align::bottom_right);
  const Mask window = Mask::sliding_window(90, 20, Align::bottom_right);
  const Mask from_first = Mask::sliding_window(90, 20, Align::top_left);
  const int qk = of.qk, v = of.v, one_piece = 1 << 20;
  const Accumulate only = Accumulate::only;
  std::vector<Lengths> whole{{of.whole, of.whole}, {100, std::min(of.whole, 300)}};
  for (const int length : {70, 129, 200}) whole.push_back({length, std::min(of.whole, length)});
  std::vector<Pack> all = {
      {"dq final, causal", whole, causal, qk, v, 2, 1, only, one_piece, true},
      {"dq final, a window", whole, window, of.shorter_qk, v, 2, 2, only, one_piece, true},
      // Of 128 keys, the last rows that see some see the second half's alone.
      {"dq final, a window from the first",
       {{330, std::min(of.whole, 128)}, {20, 20}},
       from_first,
       qk,
       v,
       2,
       1,
       only,
       one_piece,
       true},
  };
  if (of.qk > 128) return all;
  const std::vector<Lengths> apart{{330, 330}, {500, 200}, {200, 300}, {70, 290}};
  for (const auto& [name, mask] : {std::pair{"in turn, causal", causal},
                                   {"in turn, causal from the last", last},
                                   {"in turn, a window", window},
                                   {"in turn, chunks", Mask::chunked(150)}})
    all.push_back({name, apart, mask, qk, v, 2, 1, only, one_piece, false, 1, true});
  return all;
}

}  // namespace ringside::hopper::testing
