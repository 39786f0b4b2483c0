// Instructions that do the same in each lane.
#pragma once

#include <cstdint>

#include "optimized/interpreter/machine/numbers.h"
#include "optimized/interpreter/machine/state.h"

namespace ringside::ptx {

template <typename To, typename F>
void write_row(const Warp& warp, int32_t to, F f) {
  Cell<To>* out = warp.row<Cell<To>>(to);
  if (warp.mask == ~0u)
    for (int lane = 0; lane < 32; ++lane) out[lane] = to_cell<To>(f(lane));
  else
    each_lane(warp, [&](int lane) { out[lane] = to_cell<To>(f(lane)); });
}

template <auto F, typename To, typename A>
After unary(Warp& warp, const Inst& i) {
  const auto* a = warp.row<Cell<A>>(i.o[1]);
  write_row<To>(warp, i.o[0], [=](int lane) { return static_cast<To>(F(from_cell<A>(a[lane]))); });
  return After::next;
}

template <auto F, typename To, typename A, typename B>
After binary(Warp& warp, const Inst& i) {
  const auto* a = warp.row<Cell<A>>(i.o[1]);
  const auto* b = warp.row<Cell<B>>(i.o[2]);
  write_row<To>(warp, i.o[0], [=](int lane) {
    return static_cast<To>(F(from_cell<A>(a[lane]), from_cell<B>(b[lane])));
  });
  return After::next;
}

template <auto F, typename To, typename A, typename B, typename C>
After ternary(Warp& warp, const Inst& i) {
  const auto* a = warp.row<Cell<A>>(i.o[1]);
  const auto* b = warp.row<Cell<B>>(i.o[2]);
  const auto* c = warp.row<Cell<C>>(i.o[3]);
  write_row<To>(warp, i.o[0], [=](int lane) {
    return static_cast<To>(F(from_cell<A>(a[lane]), from_cell<B>(b[lane]), from_cell<C>(c[lane])));
  });
  return After::next;
}

template <auto F>
After of_predicates(Warp& warp, const Inst& i) {
  warp.set_predicate(i.o[0], F(warp.predicate(i.o[1]), warp.predicate(i.o[2])));
  return After::next;
}

}  // namespace ringside::ptx
