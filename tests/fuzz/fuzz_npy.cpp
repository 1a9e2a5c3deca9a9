// Any bytes as an npy file: refused by Error(io), or a view of just the bytes behind the header.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "io/npy.hpp"
#include "require.hpp"

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const io::Npy file = io::Npy::parse(std::as_bytes(std::span(data, size)), "input");
    const Tensor& t = file.tensor();
    REQUIRE(t.read_only && t.data && t.rank <= max_rank);
    const auto bytes = static_cast<std::size_t>(t.elements() * size_bytes(t.dtype));
    REQUIRE(bytes < size);
    REQUIRE(reinterpret_cast<std::uintptr_t>(t.data) % static_cast<std::uintptr_t>(size_bytes(t.dtype)) == 0);
    // Through the view, so that the sanitizer sees each byte that the view promises.
    REQUIRE(bytes == 0 || std::memcmp(t.data, data + (size - bytes), bytes) == 0);
  } catch (const Error& error) {
    REQUIRE(error.code() == Code::io);
    REQUIRE(std::string_view(error.what()).starts_with("input: "));
  }
  return 0;
}
