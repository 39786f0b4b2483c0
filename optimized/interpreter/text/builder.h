// Makes a function's instructions of its text.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "optimized/interpreter/machine/code.h"
#include "optimized/interpreter/text/text.h"

namespace ringside::ptx {

struct Variable {
  int width;  // bytes; 0: a predicate
  int32_t id;
};

struct Operand {
  enum class Kind { variable, predicate, number, symbol, list, address };
  Kind kind = Kind::number;
  int32_t id = 0;             // of a variable; of a predicate twice its number, + 1 if negated
  int width = 4;              // of a variable
  uint64_t number = 0;        // or an address's offset
  std::string name;           // of a variable or symbol
  std::vector<Operand> list;  // or an address's base and coordinates
};

struct Statement {
  std::string opcode;
  std::vector<std::string> parts;  // of the opcode
  std::vector<Operand> operands;

  const std::string& type() const { return parts.back(); }
  bool has(std::string_view part) const;
};

class Builder {
 public:
  Builder(Function& function, const Module& module);
  void build(size_t begin);

  // For the decoders: operand k of the instruction is this one, of so many bytes.
  void row(Inst& i, int k, const Operand& operand, int width);
  void rows(Inst& i, const Statement& s, size_t from, size_t to, int width);
  void predicate(Inst& i, int k, const Operand& operand);
  void list(Inst& i, const Operand& operand, int width);
  void address(Inst& i, int k, const Operand& operand, int width);  // its offset: imm
  [[noreturn]] void refuse(const Inst& i, const std::string& what) const;

 private:
  friend class RowAllocator;
  // Stands for where dynamic shared memory begins, until all static memory has its place.
  static constexpr uint32_t kDynamicShared = 0xdead0000u;
  struct Callee {
    std::vector<Variable> parameters;
    uint32_t begin = 0;
  };

  std::string_view peek(size_t ahead = 0) const;
  std::string_view take();
  bool take_if(std::string_view word);
  void expect(std::string_view word);
  void start(size_t begin);
  void open_scope();
  void close_scope();

  int32_t new_variable(int width);
  std::optional<Variable> find(std::string_view name);
  std::optional<Variable> special(std::string_view name);
  Operand operand();
  Operand address_operand();
  int32_t constant(uint64_t bits, int width);
  uint64_t symbol(const std::string& name);
  int32_t narrowed(const Inst& of, int32_t wide);
  std::string label_name(std::string_view label) const;

  void parameters_of_kernel();
  void body();
  void declaration(std::string_view space);
  void registers();
  void statement();
  void call(Inst i);
  void decode(Inst& i, Statement& s);
  void move(const Inst& like, const Operand& to, const Operand& from, int width);
  Callee& callee(const std::string& name);
  void build_callees();
  void resolve();

  Function& function_;
  const Module& module_;
  std::vector<Word> words_;
  size_t at_ = 0;
  std::string inside_;  // the callee; empty: the kernel
  std::vector<std::map<std::string, Variable, std::less<>>> scopes_;
  std::vector<int> scope_ids_;
  int scopes_made_ = 0;
  std::map<std::string, Variable, std::less<>> numbered_;  // %r<9>, by function: the first of them
  std::vector<int> widths_;                                // of variables
  int predicates_ = 2;                                     // the first two: never, always
  std::map<std::pair<uint64_t, int>, int32_t> constants_;
  std::map<std::string, uint32_t> labels_;
  std::vector<std::pair<uint32_t, std::string>> branches_, calls_;
  std::map<std::string, uint64_t> symbols_;  // addresses
  size_t dynamic_align_ = 16;
  std::map<std::string, Callee> callees_;
  std::vector<std::string> wanted_;
};

}  // namespace ringside::ptx
