// A graph as CUDA C++ text: one device function of (s, b, h, q, k) and its run-time values. The same text compiles with
// NVRTC, without any header, and with a host compiler for which __device__ is defined away.
// Must not know: kernels, tiles, devices.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "mods/graph.hpp"

namespace tessera::emit {

// What mod functions call: integers that saturate and round down, reals with the library's min, max and sign, 16-bit
// floats widened. Once, before the first function of a text.
std::string_view mod_prelude();

// Reals of 32 bits, as in kernels, or of 64, as the interpreter's: to decide about tiles just as the host does. The
// latter text stands after bounds_prelude() (bounds_text.hpp), in its namespace.
enum class Reals : std::uint8_t { f32, f64 };

// Text of `struct NAME_arguments` and of
//   static __device__ TYPE NAME(float s, long long b, long long h, long long q, long long k,
//                               const NAME_arguments& args)
// TYPE is bool, long long or float (f64: double), after `result`, the type of the graph's result; it tells what a graph
// without nodes is: true or the score. `dtypes`: of the tables, one a capture, in order. Literals are part of the text,
// parameters and tables are not: equal nodes, captures and dtypes give equal text. Coordinates are taken to lie in
// [-mods::farthest, mods::farthest]: where that rules saturation out, plain operations stand. Throws
// Error(invalid_dtype) for a table that cannot stand for its capture, Error(internal) for a result of another type, a
// name that is no identifier, and dtypes that are not as many as the captures.
std::string mod_function(std::string_view name, const Graph& graph, Type result, std::span<const DType> dtypes = {},
                         Reals reals = Reals::f32);

// What the elements of a table are called in that struct.
std::string_view stored(DType dtype);

// The bytes of that struct, as words of 8: for each parameter one (an integer, a float in the low half, or a double),
// then for each table its address, the last index of each axis, and the stride of each axis in elements. Never none.
std::size_t argument_words(const Graph& graph);
// words: argument_words(graph) of them. `tables` are bound to the captures, in order; their data is not read.
void pack_arguments(const Graph& graph, std::span<const mods::Table> tables, std::uint64_t* words,
                    Reals reals = Reals::f32);

}  // namespace tessera::emit
