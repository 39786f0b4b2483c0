#include "optimized/interpreter/text/text.h"

#include <algorithm>
#include <cctype>

#include "optimized/interpreter/machine/code.h"

namespace ringside::ptx {
namespace {

bool in_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '$' ||
         c == '%';
}

// Behind the brace that closes the one there.
size_t end_of_body(const std::string& text, size_t brace) {
  int depth = 0;
  for (size_t at = brace; at < text.size(); ++at) {
    if (text[at] == '{') ++depth;
    if (text[at] == '}' && --depth == 0) return at + 1;
    if (text[at] == '/' && text[at + 1] == '/') at = text.find('\n', at);
  }
  fail("a kernel without an end");
}

std::string name_behind(std::string_view line, std::string_view mark) {
  const size_t begin = line.find(mark) + mark.size();
  size_t end = begin;
  while (end < line.size() && in_word(line[end])) ++end;
  return std::string(line.substr(begin, end - begin));
}

size_t number_behind(std::string_view line, std::string_view mark, size_t otherwise) {
  const size_t at = line.find(mark);
  return at == line.npos ? otherwise : std::stoul(std::string(line.substr(at + mark.size(), 20)));
}

size_t end_of_word(const std::string& text, size_t at) {
  do ++at;
  while (in_word(text[at]) || (text[at] == ':' && (text[at + 1] == ':' || text[at - 1] == ':')));
  return at;
}

}  // namespace

Module::Module(std::string module_name, std::string module_text)
    : name(std::move(module_name)), text(std::move(module_text)) {
  for (size_t at = 0, end; at < text.size(); at = end + 1) {
    end = std::min(text.find('\n', at), text.size());
    if (text[at] != '.') continue;
    const std::string_view line = std::string_view(text).substr(at, end - at);
    const bool kernel = line.find(".entry ") != line.npos;
    if (kernel || line.find(".func ") != line.npos) {
      const size_t brace = text.find('{', at);
      if (text.find(';', at) < brace) continue;  // declared, not defined
      (kernel ? kernels : functions)[name_behind(line, kernel ? ".entry " : ".func ")] = at;
      end = end_of_body(text, brace);
    } else if (const bool global = line.find(".global ") != line.npos;
               global || line.find(".shared ") != line.npos) {
      const size_t bracket = std::min(line.find('['), line.find(';'));
      const size_t space = line.rfind(' ', bracket);
      const std::string array(line.substr(space + 1, bracket - space - 1));
      if (global && line.find(".b8 ") != line.npos && line.find('=') == line.npos)
        zeros[array] = number_behind(line, "[", 0);
      if (global) continue;
      shared[array] = {
          line[bracket] == '[' && line[bracket + 1] != ']' ? number_behind(line, "[", 0) : 8,
          number_behind(line, ".align ", 1), line.find(".extern") != line.npos};
    }
  }
}

std::vector<Word> words_of(const Module& module, size_t begin) {
  const std::string& text = module.text;
  const size_t end = end_of_body(text, text.find('{', begin));
  auto line = static_cast<uint32_t>(
      1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(begin), '\n'));
  std::vector<Word> words;
  for (size_t at = begin; at < end;) {
    const char c = text[at];
    size_t behind = at + 1;
    if (c == '\n') {
      ++line;
    } else if (c == '/' && text[at + 1] == '/') {
      behind = text.find('\n', at);
    } else if (c == '"') {
      behind = text.find('"', at + 1) + 1;
    } else if (in_word(c) || (c == '-' && is_digit(text[at + 1]))) {
      behind = end_of_word(text, at);
      words.push_back({std::string_view(text).substr(at, behind - at), line});
    } else if (std::isspace(static_cast<unsigned char>(c)) == 0) {
      words.push_back({std::string_view(text).substr(at, 1), line});
    }
    at = behind;
  }
  return words;
}

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

std::vector<std::string> split(std::string_view text, char by) {
  std::vector<std::string> parts;
  for (size_t at = 0;;) {
    const size_t end = text.find(by, at);
    parts.emplace_back(text.substr(at, end == text.npos ? end : end - at));
    if (end == text.npos) return parts;
    at = end + 1;
  }
}

uint64_t to_number(std::string_view word) {
  const std::string text(word);
  if (word.find('.') != word.npos) fail("a number of another form: " + text);
  const bool single = text.size() == 10 && text.starts_with("0f");
  const bool twice = text.size() == 18 && text.starts_with("0d");
  if (single || twice) return std::stoull(text.substr(2), nullptr, 16);
  if (text[0] == '-') return static_cast<uint64_t>(std::stoll(text, nullptr, 0));
  return std::stoull(text, nullptr, 0);
}

int width_of(std::string_view type) {
  if (type == "pred") return 0;
  if (type.ends_with("64")) return 8;
  if (type.ends_with("16x2") || type.ends_with("32")) return 4;
  if (type.ends_with("16")) return 2;
  if (type.ends_with("8")) return 1;
  fail("unknown type " + std::string(type));
}

}  // namespace ringside::ptx
