// Pieces of the text of mods: literals, elements of tables, the struct of arguments.
// Must not know: operations.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "emit/mod_text.hpp"

namespace tessera::emit {

bool is_identifier(std::string_view name);
std::string type_name(Type type, Reals reals);

// How an element of a table is stored, and how it is read from `place`.
struct Element {
  DType dtype;
  Type type;
  std::string_view stored, before, after;
};
const Element& element_of(const Capture& capture, DType dtype);  // throws Error(invalid_dtype)

std::string integer_literal(std::int64_t value, bool narrow);
std::string real_literal(double value, Reals reals);  // of f32 the nearest float; exact

std::string arguments_text(std::string_view struct_name, const Graph& graph, std::span<const DType> dtypes,
                           Reals reals);

// Whether some search reads a captured tensor: then its last axis may be longer than 32 bits tell.
bool is_searched(const Graph& graph, std::size_t slot);

}  // namespace tessera::emit
