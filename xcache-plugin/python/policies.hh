// The rules of the literature for Python.
#pragma once

#include <nanobind/nanobind.h>

// Adds cache_policies and simulate_objects to the module.
void BindPolicies(nanobind::module_& m);
