// Settings of the interpreter (interpreter/machine/code.h), of which a device knows nothing.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace ringside::testing {

// While it lives.
class Setting {
 public:
  Setting(const std::string& name, int value) : name_("RINGSIDE_PTX_" + name) {
    if (const char* set = std::getenv(name_.c_str())) before_ = set;
    setenv(name_.c_str(), std::to_string(value).c_str(), 1);
  }
  ~Setting() { before_ ? setenv(name_.c_str(), before_->c_str(), 1) : unsetenv(name_.c_str()); }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  std::string name_;
  std::optional<std::string> before_;
};

}  // namespace ringside::testing
