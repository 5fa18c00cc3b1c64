// The dataset side table for Python.
#pragma once

#include <nanobind/nanobind.h>

// Adds SideTable to the module.
void BindSideTable(nanobind::module_& m);
