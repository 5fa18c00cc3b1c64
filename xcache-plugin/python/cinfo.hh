// pfc's .cinfo for Python.
#pragma once

#include <nanobind/nanobind.h>

// Adds parse_cinfo to the module.
void BindCinfo(nanobind::module_& m);
