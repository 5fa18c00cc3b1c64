#pragma once

#include <nanobind/nanobind.h>

// LearnedCache: the cache that learns online, for the simulator.
void BindLearned(nanobind::module_& m);
