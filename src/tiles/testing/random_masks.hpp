// For tests only. Random masks as text, over tensors of a few names, and tensors bound by their names.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "mods/testing/random_program.hpp"

namespace tessera::tests {

// Masks whose thresholds lie where the positions do, so that every kind of tile is there.
std::string integer(Choices& choices, int depth);
std::string boolean(Choices& choices, int depth);

// Tensors by name, bound in the order in which a graph names them. Kept alive by what it is made from.
struct Bound {
  const char* name;
  mods::Table table;
};
std::vector<mods::Table> bind(const Graph& graph, const std::vector<Bound>& tensors);
template <class T>
mods::Table table(const std::vector<T>& values) {
  return {values.data(), dtype_of<T>(), {static_cast<std::int64_t>(values.size())}, {1}};
}
template <class T>
mods::Table table(const std::vector<T>& values, std::int64_t rows, std::int64_t columns) {
  return {values.data(), dtype_of<T>(), {rows, columns}, {columns, 1}};
}

}  // namespace tessera::tests
