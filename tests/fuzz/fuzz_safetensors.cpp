// Any bytes as a safetensors file: refused by Error(io), or every tensor lies within the file, apart from the others.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "io/safetensors.hpp"
#include "require.hpp"

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto input = std::as_bytes(std::span(data, size));
  try {
    const io::Safetensors file = io::Safetensors::parse(input, "input");
    std::uint64_t header = 0;
    REQUIRE(size >= sizeof(header));
    std::memcpy(&header, data, sizeof(header));
    const auto body = input.subspan(sizeof(header) + header);
    std::size_t covered = 0;
    for (const io::Entry& entry : file.entries()) {
      // In order and without gaps, so the bytes of a tensor are those that follow the ones before.
      REQUIRE(entry.bytes.size() <= body.size() - covered);
      REQUIRE(entry.bytes.empty() || std::memcmp(entry.bytes.data(), &body[covered], entry.bytes.size()) == 0);
      covered += entry.bytes.size();
      if (entry.shape.size() > max_rank) continue;
      const Tensor t = file.tensor(entry.name);
      REQUIRE(t.read_only && t.dtype == entry.dtype);
      REQUIRE(t.elements() * size_bytes(t.dtype) == static_cast<std::int64_t>(entry.bytes.size()));
      REQUIRE(reinterpret_cast<std::uintptr_t>(t.data) % static_cast<std::uintptr_t>(size_bytes(t.dtype)) == 0);
      // Through the view, so that the sanitizer sees each byte that the view promises.
      REQUIRE(entry.bytes.empty() || std::memcmp(t.data, &body[covered - entry.bytes.size()], entry.bytes.size()) == 0);
    }
    REQUIRE(covered == body.size());
  } catch (const Error& error) {
    REQUIRE(error.code() == Code::io);
    REQUIRE(std::string_view(error.what()).starts_with("input: "));
  }
  return 0;
}
