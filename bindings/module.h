// One registration function a concept; module.cpp calls them in order.
#pragma once

#include <pybind11/pybind11.h>

namespace ringside::bindings {

void bind_errors(pybind11::module_& m);
void bind_layout(pybind11::module_& m);
void bind_mask(pybind11::module_& m);
void bind_segments(pybind11::module_& m);
void bind_plan(pybind11::module_& m);
void bind_options(pybind11::module_& m);
void bind_attention(pybind11::module_& m);
void bind_thd(pybind11::module_& m);
void bind_arguments(pybind11::module_& m);

}  // namespace ringside::bindings
