#include "optimized/interpreter/text/builder.h"

#include <algorithm>

#include "optimized/interpreter/text/decoders.h"

namespace ringside::ptx {
namespace {

size_t rounded(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

const Decoders& decoders() {
  static const Decoders kAll = [] {
    Decoders all = arithmetic_decoders();
    for (const Decoders& more :
         {bit_decoders(), conversion_decoders(), memory_decoders(), warp_decoders(),
          barrier_decoders(), matrix_decoders(), copy_decoders()})
      all.insert(more.begin(), more.end());
    return all;
  }();
  return kAll;
}

}  // namespace

bool Statement::has(std::string_view part) const {
  return std::find(parts.begin(), parts.end(), part) != parts.end();
}

Builder::Builder(Function& function, const Module& module) : function_(function), module_(module) {}

void Builder::refuse(const Inst& i, const std::string& what) const {
  fail(what + " at " + function_.where(i.line));
}

std::string_view Builder::peek(size_t ahead) const {
  return at_ + ahead < words_.size() ? words_[at_ + ahead].text : std::string_view("\0", 1);
}
std::string_view Builder::take() {
  if (at_ >= words_.size()) fail("text that ends early in " + function_.name);
  return words_[at_++].text;
}
bool Builder::take_if(std::string_view word) {
  const bool found = peek() == word;
  if (found) ++at_;
  return found;
}
void Builder::expect(std::string_view word) {
  if (!take_if(word))
    fail("got " + std::string(peek()) + ", expected " + std::string(word) + " in " +
         function_.where(words_[at_].line));
}

void Builder::start(size_t begin) {
  words_ = words_of(module_, begin);
  at_ = 0;
  while (peek() != "(" && peek() != "{") take();
}

void Builder::open_scope() {
  scopes_.emplace_back();
  scope_ids_.push_back(scopes_made_++);
}
void Builder::close_scope() {
  scopes_.pop_back();
  scope_ids_.pop_back();
}

void Builder::build(size_t begin) {
  open_scope();
  start(begin);
  if (take_if("(")) parameters_of_kernel();
  while (peek() != "{") take();
  body();
  Inst end;
  end.flow = Flow::exit;
  function_.code.push_back(end);
  build_callees();
  resolve();
  function_.predicates = static_cast<size_t>(predicates_);
  allocate_rows(*this);
}

void Builder::parameters_of_kernel() {
  size_t end = 0;
  while (!take_if(")")) {
    if (take_if(",")) continue;
    expect(".param");
    size_t align = 1;
    if (take_if(".align")) align = to_number(take());
    const auto width = static_cast<size_t>(width_of(take().substr(1)));
    while (peek()[0] == '.')
      if (take() == ".align") take();  // of what a pointer points to
    const std::string name(take());
    size_t bytes = width;
    if (take_if("[")) {
      bytes *= to_number(take());
      expect("]");
    }
    end = rounded(end, std::max(align, width));
    symbols_[name] = end;
    function_.parameters.emplace_back(end, bytes);
    end += bytes;
  }
  constexpr size_t kAlign = 128;  // of a tensor map
  function_.parameter_storage.resize(end + kAlign);
  const auto address = reinterpret_cast<uint64_t>(function_.parameter_storage.data());
  function_.parameter_bytes =
      std::span(function_.parameter_storage).subspan(rounded(address, kAlign) - address, end);
  for (auto& [name, place] : symbols_)
    place += reinterpret_cast<uint64_t>(function_.parameter_bytes.data());
}

void Builder::resolve() {
  for (const auto& [where, label] : branches_) {
    auto found = labels_.find(label);
    const std::string bare = label.substr(0, label.find('@'));
    for (int scope = scopes_made_; scope >= 0 && found == labels_.end(); --scope)
      found = labels_.find(bare + "@" + std::to_string(scope));  // of a scope around it
    if (found == labels_.end()) refuse(function_.code[where], "no label " + label);
    function_.code[where].target = found->second;
  }
  for (const auto& [where, name] : calls_) function_.code[where].target = callees_.at(name).begin;
  function_.static_shared = rounded(function_.static_shared, dynamic_align_);
  const uint64_t begin = function_.static_shared;
  for (uint64_t& cells : function_.constants) {
    if (cells == kDynamicShared) cells = begin;
    if (cells == (uint64_t{kDynamicShared} << 32 | kDynamicShared)) cells = begin << 32 | begin;
  }
}

void Builder::body() {
  const size_t outside = scopes_.size();
  do {
    const std::string_view word = peek();
    if (word == "{" || word == "}") {
      take();
      word == "{" ? open_scope() : close_scope();
    } else if (word == ";" || word == ".pragma") {
      take();
    } else if (word == ".reg") {
      take();
      registers();
    } else if (word == ".local" || word == ".shared" || word == ".param") {
      declaration(take());
    } else if (peek(1) == ":") {
      labels_[label_name(take())] = static_cast<uint32_t>(function_.code.size());
      take();
    } else {
      statement();
    }
  } while (scopes_.size() > outside);
}

std::string Builder::label_name(std::string_view label) const {
  const std::string name = inside_ + std::string(label);
  return label[0] == '$' ? name : name + "@" + std::to_string(scope_ids_.back());
}

void Builder::declaration(std::string_view space) {
  size_t align = 1;
  if (take_if(".align")) align = to_number(take());
  const int width = width_of(take().substr(1));
  const std::string name(take());
  auto bytes = static_cast<size_t>(width);
  if (take_if("[")) {
    bytes *= to_number(take());
    expect("]");
  }
  expect(";");
  if (space == ".param") {  // of a call
    scopes_.back()[name] = {width, new_variable(width)};
    return;
  }
  size_t& end = space == ".local" ? function_.local_bytes : function_.static_shared;
  end = rounded(end, std::max(align, static_cast<size_t>(width)));
  symbols_[space == ".local" ? inside_ + name : name] = end;
  end += bytes;
}

void Builder::registers() {
  const int declared = width_of(take().substr(1)), width = declared == 1 ? 2 : declared;
  do {
    const std::string name(take());
    const auto make = [&](int count) -> Variable {
      if (width == 0) return {0, std::exchange(predicates_, predicates_ + count)};
      const Variable first{width, static_cast<int32_t>(widths_.size())};
      widths_.resize(widths_.size() + static_cast<size_t>(count), width);
      return first;
    };
    if (take_if("<")) {
      numbered_.insert_or_assign(inside_ + "|" + name, make(static_cast<int>(to_number(take()))));
      expect(">");
    } else {
      scopes_.back().insert_or_assign(name, make(1));
    }
  } while (take_if(","));
  expect(";");
}

void Builder::statement() {
  Inst i;
  i.line = words_[at_].line;
  if (take_if("@")) {
    const int negated = take_if("!") ? 1 : 0;
    i.guard = operand().id ^ negated;
  }
  Statement s;
  s.opcode = take();
  s.parts = split(s.opcode, '.');
  const auto here = static_cast<uint32_t>(function_.code.size());
  if (s.parts[0] == "bra") {
    i.flow = Flow::branch;
    branches_.emplace_back(here, label_name(take()));
  } else if (s.parts[0] == "call") {
    return call(i);
  } else if (s.parts[0] == "ret" || s.parts[0] == "exit") {
    i.flow = s.parts[0] == "exit" || inside_.empty() ? Flow::exit : Flow::ret;
  } else {
    while (peek() != ";")
      if (!take_if(",") && !take_if("|")) s.operands.push_back(operand());
    decode(i, s);
  }
  expect(";");
  function_.code.push_back(i);
}

void Builder::decode(Inst& i, Statement& s) {
  const auto decoder = decoders().find(s.parts[0]);
  if (decoder != decoders().end()) decoder->second(*this, i, s);
  if (i.run == nullptr) refuse(i, "no such instruction: " + s.opcode);
}

}  // namespace ringside::ptx
