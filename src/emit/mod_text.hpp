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

// The same for Functions::device, after mod_prelude() and after the ptx:: functions of the kernel's text.
std::string_view mod_device_prelude();

// Reals of 32 bits, as in kernels, or of 64, as the interpreter's: to decide about tiles just as the host does. The
// latter text stands after bounds_prelude() (bounds_text.hpp), in its namespace.
enum class Reals : std::uint8_t { f32, f64 };

// Whose exp, tanh, division, ...: the mathematical library's, or few instructions of the device with larger errors,
// which mod_device_prelude() states beside each.
enum class Functions : std::uint8_t { library, device };

struct ModOptions {
  Reals reals = Reals::f32;
  Functions functions = Functions::library;  // of reals of 32 bits
  // Coordinates are int and not long long, and so is every integer of which it is proved that it fits. For positions
  // within `nearby` and graphs that fits_narrow(): then every integer is what the other text makes it.
  bool narrow = false;
  // Functions::device: the error of a tanh may be absolute (mod_errors.hpp).
  bool absolute_tanh = false;
  // With `narrow`: after k the function takes it as a float, real_k, too. Where integers are converted, what depends on
  // the key is calculated from that, exactly, and the kernel converts once a tile and not once a pair.
  bool real_key = false;
};

// With ModOptions::narrow: positions of queries lie in [-nearby, nearby], those of keys, sequences and heads in
// [0, nearby], those that pad a tile included. They and their distances are floats without rounding.
inline constexpr std::int64_t nearby = std::int64_t{1} << 23;
// Parameters beyond this are cut to it when they are packed; where that would make a difference, fits_narrow() asks
// that they lie within `nearby`.
inline constexpr std::int64_t cut_parameters = 2 * nearby + (1 << 24);  // room for literals beside distances
// Whether the integer parameters of a graph have values that the narrow text is made for. Its nodes do not depend on
// them: widths of windows have any value.
bool fits_narrow(const Graph& graph);

// What coordinates are called in a text.
constexpr std::string_view position_type(bool narrow) { return narrow ? "int" : "long long"; }

// Text of `struct NAME_arguments` and of
//   static __device__ TYPE NAME(float s, POSITION b, POSITION h, POSITION q, POSITION k, const NAME_arguments& args)
// TYPE is bool, long long or float (f64: double), after `result`, the type of the graph's result; it tells what a graph
// without nodes is: true or the score. `dtypes`: of the tables, one a capture, in order. Literals are part of the text,
// parameters and tables are not: equal nodes, captures and dtypes give equal text. POSITION is position_type();
// coordinates are taken to lie in [-mods::farthest, mods::farthest], or as `narrow` says: where that rules saturation
// out, plain operations stand. Throws Error(invalid_dtype) for a table that cannot stand for its capture,
// Error(internal) for a result of another type, a name that is no identifier, and dtypes that are not as many as the
// captures.
std::string mod_function(std::string_view name, const Graph& graph, Type result, std::span<const DType> dtypes = {},
                         const ModOptions& options = {});

// What the elements of a table are called in that struct.
std::string_view stored(DType dtype);

// The bytes of that struct, as words of 8: for each parameter one (an integer, a float in the low half, or a double),
// then for each table its address, the last index of each axis, and the stride of each axis (in elements; narrow: in
// bytes). Never none.
std::size_t argument_words(const Graph& graph);
// words: argument_words(graph) of them. `tables` are bound to the captures, in order; their data is not read.
void pack_arguments(const Graph& graph, std::span<const mods::Table> tables, std::uint64_t* words,
                    const ModOptions& options = {});

}  // namespace tessera::emit
