// A compiled kernel as a value and as bytes: what caches and packs hold.
// Must not know: files, compilers, the driver.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "cuda/digest.hpp"
#include "gpu/engine.hpp"

namespace tessera::cuda {

// Names a text, whatever compiles it: all of the text, the library's version and the options it is compiled with.
Digest text_key(const gpu::KernelText& text);

struct KernelImage {
  Digest text{};            // text_key
  std::string name;         // of the function
  std::string spec;         // the printed spec, for people
  std::string arch;         // what it was compiled for: "sm_90a"
  std::string compiler;     // "NVRTC 13.0"
  std::string compiler_id;  // tells one installed compiler from another (Compiler::id())
  std::string library;      // version of this library
  int registers = 0, stack_bytes = 0, spill_bytes = 0, smem_bytes = 0;  // as the assembler reports; smem: static
  std::string log;                                                      // of the compiler
  std::string cubin;
  bool operator==(const KernelImage&) const = default;
};

// With a header, the length and a digest, so that no part of it can be missing or changed unseen.
std::string encode(const KernelImage& image);
// Nothing, and `why`: not such a file, of another format, cut off, damaged.
std::optional<KernelImage> decode(std::string_view bytes, std::string& why);

// Whether code for `arch` ("sm_80", "sm_90a", "sm_100f") runs on a device of compute capability `device` (90): a plain
// one on its own and on later minor versions of its generation, one with an "a" on its own alone, with an "f" in its
// family.
bool runs_on(std::string_view arch, int device);
// "sm_90a": 90; 0: no such name.
int arch_number(std::string_view arch);

// Fields of numbers and strings, one after the other.
class Writer {
 public:
  void number(std::uint64_t value);
  void text(std::string_view value);
  std::string bytes;
};
// Reads what Writer wrote; after anything wrong `ok` is false and all values are empty.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}
  std::uint64_t number();
  std::string_view text();
  bool ok = true;
  bool at_end() const { return rest_.empty(); }

 private:
  std::string_view take(std::uint64_t count);
  std::string_view rest_;
};

}  // namespace tessera::cuda
