// SHA-256 (FIPS 180-4): what names kernels in caches and packs, and what tells a damaged file from a whole one. Two
// texts with one name would run the wrong kernel without a word, so it is a digest for which nobody knows any. Must not
// know: what is digested.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::cuda {

using Digest = std::array<std::uint8_t, 32>;

class Digester {
 public:
  Digester& add(std::string_view bytes);
  // Length and bytes: "ab" + "c" is not "a" + "bc".
  Digester& add_field(std::string_view bytes);
  Digester& add_field(std::uint64_t number);
  Digest done();

 private:
  void block(const std::uint8_t* bytes);
  std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::uint8_t, 64> rest_{};
  std::uint64_t bytes_ = 0;
};

inline Digest digest(std::string_view bytes) { return Digester().add(bytes).done(); }
std::string hex(const Digest& digest);

}  // namespace tessera::cuda
