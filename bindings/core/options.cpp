#include "bindings/core/options.h"

#include <cmath>

#include "bindings/core/arguments.h"
#include "bindings/core/module.h"
#include "reference/support/errors.h"

namespace ringside::bindings {
namespace {

using namespace pybind11::literals;

std::vector<double> per_head(const std::optional<DoubleArray>& x, const char* name, int num_heads) {
  if (!x) return {};
  require(x->ndim() == 0 || (x->ndim() == 1 && x->shape(0) == num_heads), name, " has shape ",
          shape_of(*x), "; expected one number, or one for each of the ", num_heads,
          " query heads");
  std::vector<double> values(static_cast<size_t>(num_heads));
  for (int head = 0; head < num_heads; ++head) {
    values[head] = x->data()[x->ndim() == 0 ? 0 : head];
    require(std::isfinite(values[head]), name, " of head ", head, " is ", values[head],
            "; expected a finite number. For none, leave ", name, " out");
  }
  return values;
}

std::optional<DoubleArray> numbers_or_none(const py::object& x, const char* name) {
  if (x.is_none()) return std::nullopt;
  return numbers(x, name);
}

}  // namespace

void OptionsArgument::check() const {
  require(!softmax_scale || std::isfinite(*softmax_scale),
          "softmax_scale=", softmax_scale.value_or(0),
          "; expected a finite number, or None for 1/sqrt(head_dim_qk)");
  require(std::isfinite(softcap) && softcap >= 0, "softcap=", softcap,
          "; expected 0 (none) or the largest magnitude a score may reach");
  require(0 <= dropout_p && dropout_p < 1, "dropout_p=", dropout_p,
          "; expected a probability, 0 <= p < 1");
}

AttentionOptions OptionsArgument::resolve(int num_heads, int head_dim_qk) const {
  AttentionOptions options;
  options.softmax_scale = softmax_scale.value_or(1.0 / std::sqrt(static_cast<double>(head_dim_qk)));
  options.softcap = softcap;
  options.sinks = per_head(sink, "sink", num_heads);
  options.alibi_slopes = per_head(alibi_slopes, "alibi_slopes", num_heads);
  options.dropout = {dropout_p, dropout_seed, dropout_origin.first, dropout_origin.second};
  return options;
}

void bind_options(py::module_& m) {
  py::class_<OptionsArgument>(m, "OptionsArgument", "See ringside.Options.")
      .def(py::init(strictly<"softmax_scale", "softcap", "sink", "alibi_slopes", "dropout_p",
                             "dropout_seed", "dropout_origin">(
               [](std::optional<double> softmax_scale, double softcap, const py::object& sink,
                  const py::object& alibi_slopes, double dropout_p, uint64_t dropout_seed,
                  std::pair<int, int> dropout_origin) {
                 OptionsArgument options{softmax_scale,
                                         softcap,
                                         numbers_or_none(sink, "sink"),
                                         numbers_or_none(alibi_slopes, "alibi_slopes"),
                                         dropout_p,
                                         dropout_seed,
                                         dropout_origin};
                 options.check();
                 return options;
               })),
           py::kw_only(), "softmax_scale"_a = py::none(), "softcap"_a = 0.0, "sink"_a = py::none(),
           "alibi_slopes"_a = py::none(), "dropout_p"_a = 0.0, "dropout_seed"_a = 0,
           "dropout_origin"_a = std::pair(0, 0))
      .def(
          "require_heads",
          [](const OptionsArgument& o, int num_heads) {
            static_cast<void>(o.resolve(num_heads, 1));
          },
          "num_heads"_a, "Raises where what is per head is for another number of heads.");
}

}  // namespace ringside::bindings
