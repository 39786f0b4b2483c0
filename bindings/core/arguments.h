// The one conversion of arguments: what every bound function takes is converted here, strictly.
//
// pybind11 would turn numpy.float32(2.7) into 2, text into a number and bytes into text, and would
// answer the rest with a list of C++ signatures. strictly<"rank", "side">(f) is f with arguments
// that know their names and say got, expected and fix where they do not fit.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "reference/support/errors.h"

namespace ringside::bindings {

namespace py = pybind11;

// "None", "a str", "a numpy.ndarray of dtype float64 and shape ()".
std::string kind_of(const py::handle& x);

[[noreturn]] void refuse_kind(const py::handle& x, const std::string& name,
                              const std::string& expected_and_fix);

// int, NumPy's integers and whatever else has __index__; never a bool, never a fraction.
int64_t integer(const py::handle& x, const std::string& name, int64_t least, int64_t most);
uint64_t unsigned_integer(const py::handle& x, const std::string& name);  // 0 to 2**64-1

// float, int, NumPy's floating and integer scalars, and arrays of no dimension that hold one.
double real(const py::handle& x, const std::string& name);

bool is_list(const py::handle& x);  // a sequence of known length, but neither text nor masked
bool boolean(const py::handle& x, const std::string& name);
std::string text(const py::handle& x, const std::string& name);  // str, not bytes

template <typename T>
using Caster = py::detail::make_caster<T>;

template <typename T>
concept Bound = std::derived_from<Caster<T>, py::detail::type_caster_generic>;  // by py::class_

template <typename T>
constexpr bool is_optional = false;
template <typename T>
constexpr bool is_optional<std::optional<T>> = true;
template <typename T>
constexpr bool is_pair = false;
template <typename A, typename B>
constexpr bool is_pair<std::pair<A, B>> = true;

template <typename T>
const T& bound(const py::handle& x, const std::string& name) {
  Caster<T> caster;
  if (x.is_none() || !caster.load(x, false))
    refuse_kind(x, name,
                "a ringside." + py::str(py::type::of<T>().attr("__name__")).cast<std::string>());
  return py::detail::cast_op<const T&>(caster);
}

template <typename T>
T converted(const py::handle& x, const std::string& name);

template <typename T>
T converted_pair(const py::handle& x, const std::string& name) {
  if (!is_list(x)) refuse_kind(x, name, "a tuple of two");
  if (py::len(x) != 2)
    throw py::type_error(
        concat(name, " has ", py::len(x), " entries; expected a tuple of two. Pass two"));
  const auto both = py::tuple(py::reinterpret_borrow<py::object>(x));
  return {converted<typename T::first_type>(both[0], name + "[0]"),
          converted<typename T::second_type>(both[1], name + "[1]")};
}

// A container of the standard library or a class of Python's, without any conversion of elements
// that pybind11 does not hold for exact.
template <typename T>
T exact(const py::handle& x, const std::string& name) {
  Caster<T> caster;
  if (!caster.load(x, false))
    refuse_kind(x, name, std::string("a value of type ") + Caster<T>::name.text);
  return py::detail::cast_op<T>(std::move(caster));
}

template <>
inline py::sequence exact<py::sequence>(const py::handle& x, const std::string& name) {
  if (!is_list(x)) refuse_kind(x, name, "a list");
  return py::reinterpret_borrow<py::sequence>(x);
}

template <typename T>
T converted(const py::handle& x, const std::string& name) {
  using Limits = std::numeric_limits<T>;
  if constexpr (is_optional<T>) {
    if (x.is_none()) return std::nullopt;
    return converted<typename T::value_type>(x, name);
  } else if constexpr (is_pair<T>) {
    return converted_pair<T>(x, name);
  } else if constexpr (std::same_as<T, bool>) {
    return boolean(x, name);
  } else if constexpr (std::same_as<T, uint64_t>) {
    return unsigned_integer(x, name);
  } else if constexpr (std::integral<T>) {
    return static_cast<T>(integer(x, name, Limits::min(), Limits::max()));
  } else if constexpr (std::floating_point<T>) {
    return static_cast<T>(real(x, name));
  } else if constexpr (std::same_as<T, std::string>) {
    return text(x, name);
  } else if constexpr (Bound<T>) {
    return bound<T>(x, name);
  } else {
    return exact<T>(x, name);
  }
}

// --- names

template <size_t kSize>
struct Name {
  char text[kSize];
  consteval Name(const char (&literal)[kSize]) { std::copy_n(literal, kSize, text); }  // NOLINT
};

// An argument on its way to a parameter of type Parameter.
template <Name kName, typename Parameter>
struct Argument {
  using Value = std::remove_cvref_t<Parameter>;
  static constexpr bool kByReference = Bound<Value>;
  using Held = std::conditional_t<kByReference, const Value*, std::optional<Value>>;

  Held held{};

  static Argument from(const py::handle& x) {
    if constexpr (kByReference)
      return {&bound<Value>(x, kName.text)};
    else
      return {converted<Value>(x, kName.text)};
  }
  const Value& value() const { return *held; }
};

template <Name... kNames, typename Result, typename... Parameters>
requires(sizeof...(kNames) ==
         sizeof...(Parameters)) auto strictly(Result (*function)(Parameters...)) {
  return [function](const Argument<kNames, Parameters>&... arguments) -> Result {
    return function(arguments.value()...);
  };
}

template <Name... kNames, typename Result, typename Self, typename... Parameters>
requires(sizeof...(kNames) ==
         sizeof...(Parameters)) auto strictly(Result (*method)(Self, Parameters...)) {
  return [method](Self self, const Argument<kNames, Parameters>&... arguments) -> Result {
    return method(self, arguments.value()...);
  };
}

template <Name... kNames, typename Lambda>
requires requires(Lambda lambda) { +lambda; } && std::is_class_v<Lambda>
auto strictly(Lambda lambda) { return strictly<kNames...>(+lambda); }

// --- what type stubs say

template <typename T>
constexpr auto annotation() {
  using py::detail::const_name;
  if constexpr (is_optional<T>)
    return annotation<typename T::value_type>() + const_name(" | None");
  else if constexpr (is_pair<T>)
    return const_name("tuple[") + annotation<typename T::first_type>() + const_name(", ") +
           annotation<typename T::second_type>() + const_name("]");
  else if constexpr (std::same_as<T, bool>)
    return const_name("bool");
  else if constexpr (std::integral<T>)
    return const_name("typing.SupportsIndex");
  else if constexpr (std::floating_point<T>)
    return const_name("typing.SupportsFloat");
  else
    return Caster<T>::name;
}

// Replaces pybind11's list of signatures, where an argument is missing or unknown, by what Python
// says of its own functions; see ringside/_signatures.py.
void name_wrong_arguments(const py::module_& m);

}  // namespace ringside::bindings

namespace pybind11::detail {

template <ringside::bindings::Name kName, typename Parameter>
struct type_caster<ringside::bindings::Argument<kName, Parameter>> {
  using Argument = ringside::bindings::Argument<kName, Parameter>;
  PYBIND11_TYPE_CASTER(Argument, ringside::bindings::annotation<typename Argument::Value>());

  bool load(handle x, bool) {  // throws where x does not fit
    value = Argument::from(x);
    return true;
  }
};

}  // namespace pybind11::detail
