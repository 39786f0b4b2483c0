#include "optimized/interpreter/machine/steps.h"

#include <algorithm>
#include <utility>

namespace ringside::ptx {
namespace {

// The lanes of a warp at one instruction go on together. Those furthest behind go first, so that
// the others meet them; where these wait for the others, any may.
class Turn {
 public:
  Turn(Warp& warp, int instructions)
      : warp_(warp), code_(warp.block->function->code), left_(instructions) {}

  bool take() {
    while (left_ > 0 && warp_.alive != 0 && !over_) {
      choose();
      while (go_on()) {
      }
    }
    return moved_;
  }

 private:
  void choose() {
    uint32_t ready = warp_.alive & ~warp_.parked;
    if (ready == 0) apart();
    pc_ = ~0u;
    if (warp_.any_group) {
      for (auto skip = random()() % static_cast<unsigned>(std::popcount(ready)); skip > 0; --skip)
        ready &= ready - 1;
      ready &= ~(ready - 1);
      warp_.any_group = false;
    }
    each(ready, [&](uint32_t& pc) { pc_ = std::min(pc_, pc); });
    group_ = 0, meets_ = ~0u;
    for (uint32_t rest = warp_.alive; rest != 0; rest &= rest - 1) {
      const uint32_t pc = warp_.pc[static_cast<size_t>(std::countr_zero(rest))];
      if (pc == pc_) group_ |= rest & ~(rest - 1);
      if (pc > pc_) meets_ = std::min(meets_, pc);
    }
    warp_.parked &= ~group_;
  }

  // Whether this group goes on.
  bool go_on() {
    const Inst& i = code_[pc_];
    warp_.now = &i;
    const uint32_t lanes = i.guard == kUnguarded ? group_ : group_ & warp_.predicate(i.guard);
    if (i.flow != Flow::on) return follow(i, lanes);
    if (lanes != 0) {
      if (i.together != Together::no && !all_here(i, lanes)) {
        warp_.parked |= group_;
        return leave_at(pc_);
      }
      warp_.mask = lanes;
      const After after = i.run(warp_, i);
      over_ = after != After::next;
      if (after == After::blocked) return leave_at(pc_);
    }
    count();
    if (--left_ <= 0 || over_ || pc_ + 1 >= meets_) return leave_at(pc_ + 1);
    ++pc_;
    return true;
  }

  // What follows an instruction that polls is no way further, until it is more than its loop.
  void count() {
    constexpr int kLoop = 32;
    if (std::exchange(warp_.polls, false)) warp_.in_loop = kLoop;
    if (warp_.in_loop == 0)
      moved_ = true;
    else
      --warp_.in_loop;
  }

  bool all_here(const Inst& i, uint32_t lanes) const {
    if (group_ == warp_.alive) return true;
    const bool members = i.together == Together::members;
    const uint32_t needed = members ? warp_.row<uint32_t>(i.o[5])[std::countr_zero(lanes)] : ~0u;
    return (needed & warp_.alive & ~group_) == 0;
  }

  bool follow(const Inst& i, uint32_t lanes) {
    --left_;
    count();
    if (i.flow == Flow::branch && lanes == group_ && group_ == warp_.alive && left_ > 0) {
      pc_ = i.target;
      return true;
    }
    leave_at(pc_ + 1);
    warp_.mask = lanes;
    if (i.flow == Flow::exit && lanes != 0) {
      finish_copies(warp_, i, lanes);
      warp_.alive &= ~lanes;
    }
    each_lane(warp_, [&](int lane) {
      const auto l = static_cast<size_t>(lane);
      if (i.flow == Flow::ret) {
        warp_.pc[l] = warp_.returns[l].back();
        warp_.returns[l].pop_back();
      } else if (i.flow != Flow::exit) {
        if (i.flow == Flow::call) warp_.returns[l].push_back(pc_ + 1);
        warp_.pc[l] = i.target;
      }
    });
    return false;
  }

  bool leave_at(uint32_t pc) {
    each(group_, [&](uint32_t& of_lane) { of_lane = pc; });
    return false;
  }

  template <typename F>
  void each(uint32_t lanes, F f) {
    for (; lanes != 0; lanes &= lanes - 1)
      f(warp_.pc[static_cast<size_t>(std::countr_zero(lanes))]);
  }

  [[noreturn]] void apart() {
    std::string lines = "lanes wait for each other apart, in lines";
    each(warp_.alive, [&](uint32_t& pc) { (lines += ' ') += std::to_string(code_[pc].line); });
    warp_.mask = warp_.alive;
    fail(warp_, code_[warp_.pc[static_cast<size_t>(std::countr_zero(warp_.alive))]], lines);
  }

  Warp& warp_;
  const std::vector<Inst>& code_;
  int left_;
  bool moved_ = false, over_ = false;
  uint32_t pc_ = 0, group_ = 0;
  uint32_t meets_ = 0;  // the next instruction at which other lanes are
};

}  // namespace

bool take_turn(Warp& warp, int instructions) {
  warp.polls = false;
  return Turn(warp, instructions).take();
}

}  // namespace ringside::ptx
