// CacheReplay for Python.
#pragma once

#include <nanobind/nanobind.h>

void BindCacheReplay(nanobind::module_& m);
