// Operands of statements: what a name, a number or a list means.
#include <algorithm>
#include <functional>

#include "optimized/interpreter/machine/device_memory.h"
#include "optimized/interpreter/text/builder.h"
#include "optimized/interpreter/text/decoders.h"

namespace ringside::ptx {
int32_t Builder::new_variable(int width) {
  widths_.push_back(width);
  return static_cast<int32_t>(widths_.size()) - 1;
}

std::optional<Variable> Builder::find(std::string_view name) {
  for (size_t scope = scopes_.size(); scope-- > 0;)
    if (const auto found = scopes_[scope].find(name); found != scopes_[scope].end())
      return found->second;
  size_t digits = name.size();
  while (digits > 0 && is_digit(name[digits - 1])) --digits;
  const auto first = numbered_.find(inside_ + "|" + std::string(name.substr(0, digits)));
  if (digits == name.size() || first == numbered_.end()) return special(name);
  return Variable{first->second.width,
                  first->second.id + static_cast<int32_t>(to_number(name.substr(digits)))};
}

std::optional<Variable> Builder::special(std::string_view name) {
  static const std::map<std::string, Special, std::less<>> kNames = {
      {"%tid.x", Special::tid_x},
      {"%tid.y", Special::tid_y},
      {"%tid.z", Special::tid_z},
      {"%ntid.x", Special::ntid_x},
      {"%ntid.y", Special::ntid_y},
      {"%ntid.z", Special::ntid_z},
      {"%ctaid.x", Special::ctaid_x},
      {"%ctaid.y", Special::ctaid_y},
      {"%ctaid.z", Special::ctaid_z},
      {"%nctaid.x", Special::nctaid_x},
      {"%nctaid.y", Special::nctaid_y},
      {"%nctaid.z", Special::nctaid_z},
      {"%laneid", Special::laneid},
      {"%warpid", Special::warpid},
      {"%envreg1", Special::grid_high},
      {"%envreg2", Special::grid_low},
      {"%lanemask_lt", Special::lanemask_lt}};
  const auto found = kNames.find(name);
  if (found == kNames.end()) return {};
  const Variable made{4, new_variable(4)};
  function_.specials.emplace_back(made.id, found->second);
  function_.waits_for_grid |= found->second >= Special::grid_high;
  scopes_[0].emplace(std::string(name), made);
  return made;
}

Operand Builder::operand() {
  Operand o;
  const std::string_view word = take();
  if (word == "{") {
    o.kind = Operand::Kind::list;
    while (!take_if("}"))
      if (!take_if(",")) o.list.push_back(operand());
  } else if (word == "[") {
    o = address_operand();
  } else if (word == "!") {
    o = operand();
    o.id ^= 1;
  } else if (word[0] == '-' || is_digit(word[0])) {
    o.number = to_number(word);
  } else if (const std::optional<Variable> found = find(word)) {
    o.kind = found->width == 0 ? Operand::Kind::predicate : Operand::Kind::variable;
    o.id = found->width == 0 ? found->id * 2 : found->id;
    o.width = found->width;
    o.name = word;
  } else {
    o.kind = Operand::Kind::symbol;
    o.name = word;
  }
  return o;
}

Operand Builder::address_operand() {
  Operand o;
  o.kind = Operand::Kind::address;
  o.list.push_back(operand());
  if (take_if("+") || peek()[0] == '-') o.number = to_number(take());
  if (take_if(",")) o.list.push_back(operand());  // coordinates
  expect("]");
  return o;
}

int32_t Builder::constant(uint64_t bits, int width) {
  const int units = width == 8 ? 2 : 1;
  if (units == 1) bits &= 0xffffffffu;
  const auto [found, made] = constants_.try_emplace({bits, units}, 0);
  if (made) {
    found->second = -1 - static_cast<int32_t>(function_.constants.size() / 16);
    const uint64_t cells = units == 2 ? bits : bits << 32 | bits;
    function_.constants.insert(function_.constants.end(), static_cast<size_t>(16 * units), cells);
  }
  return found->second;
}

uint64_t Builder::symbol(const std::string& name) {
  for (const std::string& known : {inside_ + name, name})
    if (const auto found = symbols_.find(known); found != symbols_.end()) return found->second;
  if (const auto zeros = module_.zeros.find(name); zeros != module_.zeros.end()) {
    std::byte* data = allocate(zeros->second);
    std::fill_n(data, zeros->second, std::byte{0});
    return symbols_[name] = reinterpret_cast<uint64_t>(data);
  }
  const auto found = module_.shared.find(name);
  if (found == module_.shared.end()) fail("no symbol " + name + " in " + function_.name);
  const SharedArray& array = found->second;
  if (array.dynamic) {
    dynamic_align_ = std::max(dynamic_align_, array.align);
    return kDynamicShared;
  }
  size_t& end = function_.static_shared;
  end = (end + array.align - 1) / array.align * array.align;
  const size_t begin = end;
  end += array.bytes;
  return symbols_[name] = begin;
}

// The low half of a wide variable, where an instruction reads less.
int32_t Builder::narrowed(const Inst& of, int32_t wide) {
  Inst m;
  m.line = of.line;
  m.o[0] = new_variable(4), m.o[1] = wide;
  m.slot[0] = m.slot[1] = Slot::row;
  m.run = copy_low_half();
  function_.code.push_back(m);
  return m.o[0];
}

void Builder::row(Inst& i, int k, const Operand& operand, int width) {
  i.slot[k] = Slot::row;
  switch (operand.kind) {
    case Operand::Kind::number:
      i.o[k] = constant(operand.number, width);
      return;
    case Operand::Kind::symbol:
      i.o[k] = constant(symbol(operand.name), width);
      return;
    case Operand::Kind::variable: {
      const bool written = (i.writes >> k & 1) != 0, wide = operand.width == 8;
      if ((width == 8) != wide && (written || width == 8)) refuse(i, "widths that do not fit");
      i.o[k] = width < 8 && wide ? narrowed(i, operand.id) : operand.id;
      return;
    }
    default:
      refuse(i, "an operand that is no row");
  }
}

void Builder::rows(Inst& i, const Statement& s, size_t from, size_t to, int width) {
  for (size_t k = from; k < to; ++k) row(i, static_cast<int>(k), s.operands.at(k), width);
}

void Builder::predicate(Inst& i, int k, const Operand& operand) {
  i.slot[k] = Slot::predicate;
  if (operand.kind == Operand::Kind::number)
    i.o[k] = operand.number == 0 ? 0 : 2;
  else if (operand.kind == Operand::Kind::predicate)
    i.o[k] = operand.id;
  else
    refuse(i, "an operand that is no predicate");
}

void Builder::list(Inst& i, const Operand& operand, int width) {
  std::vector<int32_t> rows;
  const bool reads = (i.writes & kWritesList) == 0;
  const auto add = [&](const Operand& item) {
    if (item.kind == Operand::Kind::variable)
      rows.push_back(reads && width < 8 && item.width == 8 ? narrowed(i, item.id) : item.id);
    else if (item.kind == Operand::Kind::number)
      rows.push_back(constant(item.number, width));
    else if (item.name == "_")
      rows.push_back(new_variable(width));  // nobody reads it
    else
      refuse(i, "a list of something else");
  };
  if (operand.kind == Operand::Kind::list)
    for (const Operand& item : operand.list) add(item);
  else
    add(operand);
  if (i.list_size == 0) i.list = static_cast<int32_t>(function_.lists.size());
  i.list_size = static_cast<uint16_t>(i.list_size + rows.size());
  function_.lists.insert(function_.lists.end(), rows.begin(), rows.end());
}

void Builder::address(Inst& i, int k, const Operand& operand, int width) {
  if (operand.kind != Operand::Kind::address) refuse(i, "an operand that is no address");
  row(i, k, operand.list[0], width);
  i.imm = static_cast<int64_t>(operand.number);
}

}  // namespace ringside::ptx
