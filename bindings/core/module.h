// One registration function a concept; module.cpp calls them in order.
#pragma once

#include <pybind11/pybind11.h>

#include <utility>

namespace ringside::bindings {

void bind_errors(pybind11::module_& m);
void bind_layout(pybind11::module_& m);
void bind_mask(pybind11::module_& m);
void bind_segments(pybind11::module_& m);
void bind_plan(pybind11::module_& m);
void bind_ranks(pybind11::module_& m);
void bind_options(pybind11::module_& m);
void bind_attention(pybind11::module_& m);
void bind_thd(pybind11::module_& m);
void bind_arguments(pybind11::module_& m);

// What pickle and copy make a value of whose constructor takes all that it is: the call.
template <typename... Arguments>
pybind11::tuple constructor_call(const pybind11::handle& self, Arguments&&... arguments) {
  return pybind11::make_tuple(pybind11::type::of(self),
                              pybind11::make_tuple(std::forward<Arguments>(arguments)...));
}

}  // namespace ringside::bindings
