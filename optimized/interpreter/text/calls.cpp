// Calls of functions: their parameters are variables, as nothing calls itself.
#include <algorithm>

#include "optimized/interpreter/text/builder.h"
#include "optimized/interpreter/text/decoders.h"

namespace ringside::ptx {

void Builder::build_callees() {
  for (size_t k = 0; k < wanted_.size(); ++k) {
    inside_ = wanted_[k];
    Callee& callee = callees_.at(inside_);
    callee.begin = static_cast<uint32_t>(function_.code.size());
    start(module_.functions.at(inside_));
    size_t parameter = 0;
    if (take_if("("))
      while (!take_if(")")) {
        const std::string_view word = take();
        if (word[0] != '.' && word != ",")
          scopes_[0].emplace(std::string(word), callee.parameters.at(parameter++));
      }
    while (peek() != "{") take();
    body();
    Inst back;
    back.flow = Flow::ret;
    function_.code.push_back(back);
  }
}

void Builder::call(Inst i) {
  const std::string name(take());
  const std::vector<Variable> parameters = callee(name).parameters;
  if (take_if(",")) {
    expect("(");
    for (size_t k = 0; !take_if(")");) {
      if (take_if(",")) continue;
      const Variable& to = parameters.at(k++);
      Operand parameter;
      parameter.kind = Operand::Kind::variable;
      parameter.id = to.id, parameter.width = to.width;
      move(i, parameter, operand(), to.width);
    }
  }
  expect(";");
  i.flow = Flow::call;
  calls_.emplace_back(static_cast<uint32_t>(function_.code.size()), name);
  function_.code.push_back(i);
}

void Builder::move(const Inst& like, const Operand& to, const Operand& from, int width) {
  Inst m;
  m.line = like.line;
  m.guard = like.guard;
  row(m, 0, to, width);
  row(m, 1, from, width);
  m.run = copy_of_width(width);
  function_.code.push_back(m);
}

Builder::Callee& Builder::callee(const std::string& name) {
  const auto known = callees_.find(name);
  if (known != callees_.end()) return known->second;
  const auto found = module_.functions.find(name);
  if (found == module_.functions.end()) fail("no function " + name);
  Callee& made = callees_[name];
  const size_t open = module_.text.find('(', found->second);
  std::string list = module_.text.substr(open + 1, module_.text.find(')', open) - open - 1);
  std::replace(list.begin(), list.end(), '\n', ' ');
  for (const std::string& word : split(list, ' '))
    if (const std::string bare = word.substr(std::min(word.find('.'), word.size()));
        bare.size() > 1 && bare != ".param" && bare != ".align")
      made.parameters.push_back({width_of(bare.substr(1)), new_variable(width_of(bare.substr(1)))});
  wanted_.push_back(name);
  return made;
}

}  // namespace ringside::ptx
