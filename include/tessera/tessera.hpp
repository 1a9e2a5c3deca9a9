// Tessera: exact attention at the speed of the hardware. Everything public.
#pragma once
#include "tessera/attention.hpp"
#include "tessera/error.hpp"
#include "tessera/expr.hpp"
#include "tessera/kernels.hpp"
#include "tessera/mods.hpp"
#include "tessera/plan.hpp"
#include "tessera/problem.hpp"
#include "tessera/tensor.hpp"
#include "tessera/tile_map.hpp"
#include "tessera/trace.hpp"
