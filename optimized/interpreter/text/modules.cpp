// Kernels by the name that the compiler gave them, made when first asked for.
#include <map>
#include <memory>

#include "optimized/interpreter/text/builder.h"

namespace ringside::ptx {
namespace {

struct Modules {
  std::map<std::string, Module> all;
  std::map<std::pair<std::string, std::string>, Function> made;
};
Modules& modules() {
  static Modules known;
  return known;
}

}  // namespace

void add_module(const std::string& module, std::string text) {
  modules().all.try_emplace(module, module, std::move(text));
}

Function* find_kernel(const std::string& module, const std::string& name) {
  const auto found = modules().all.find(module);
  if (found == modules().all.end()) return nullptr;
  const auto kernel = found->second.kernels.find(name);
  if (kernel == found->second.kernels.end()) return nullptr;
  const auto [place, made] = modules().made.try_emplace({module, name});
  Function& function = place->second;
  if (made) {
    function.name = name, function.module = module;
    Builder(function, found->second).build(kernel->second);
  }
  return &function;
}

}  // namespace ringside::ptx
