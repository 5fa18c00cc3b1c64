// The embedded model for Python.
#pragma once

#include <nanobind/nanobind.h>

// Adds EmbeddedModel to the module, and lets a bundle that cannot be used be a ValueError.
void BindEmbeddedModel(nanobind::module_& m);
