#include "cuda/kernel_image.hpp"

#include <algorithm>

#include "cuda/compile_options.hpp"

namespace tessera::cuda {
namespace {

constexpr std::string_view magic = "TSKERN01";
constexpr std::size_t header_bytes = 8 + 8 + 32;  // magic, length of all, digest of what follows

std::string_view bytes_of(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace

Digest text_key(const gpu::KernelText& text) {
  Digester key;
  key.add_field(TESSERA_VERSION);
  for (const char* option : compile_options) key.add_field(option);
  return key.add_field(text.name)
      .add_field(text.spec)
      .add_field(text.source)
      .add_field(static_cast<std::uint64_t>(text.threads))
      .add_field(text.smem_bytes)
      .done();
}

std::string encode(const KernelImage& image) {
  Writer body;
  body.text(bytes_of(image.text));
  for (const std::string* text :
       {&image.name, &image.spec, &image.arch, &image.compiler, &image.compiler_id, &image.library})
    body.text(*text);
  for (const int number : {image.registers, image.stack_bytes, image.spill_bytes, image.smem_bytes})
    body.number(static_cast<std::uint64_t>(number));
  body.text(image.log);
  body.text(image.cubin);
  Writer all;
  all.bytes = magic;
  all.number(header_bytes + body.bytes.size());
  all.bytes += bytes_of(digest(body.bytes));
  return all.bytes + body.bytes;
}

std::optional<KernelImage> decode(std::string_view bytes, std::string& why) {
  if (bytes.size() < header_bytes || !bytes.starts_with(magic.substr(0, 6))) {
    why = bytes.size() < header_bytes ? "cut off" : "no kernel of this library";
    return std::nullopt;
  }
  if (!bytes.starts_with(magic)) {
    why = "of another format";
    return std::nullopt;
  }
  const std::uint64_t length = Reader(bytes.substr(8)).number();
  if (length != bytes.size()) {
    why = length > bytes.size() ? "cut off" : "longer than it says";
    return std::nullopt;
  }
  const std::string_view body = bytes.substr(header_bytes);
  if (bytes.substr(16, 32) != bytes_of(digest(body))) {
    why = "damaged: its digest is another";
    return std::nullopt;
  }
  Reader reader(body);
  KernelImage image;
  const std::string_view key = reader.text();
  if (key.size() == image.text.size()) std::copy(key.begin(), key.end(), image.text.begin());
  else reader.ok = false;
  for (std::string* text : {&image.name, &image.spec, &image.arch, &image.compiler, &image.compiler_id, &image.library})
    *text = reader.text();
  for (int* number : {&image.registers, &image.stack_bytes, &image.spill_bytes, &image.smem_bytes})
    *number = static_cast<int>(reader.number());
  image.log = reader.text();
  image.cubin = reader.text();
  if (reader.ok && reader.at_end()) return image;
  why = "malformed";
  return std::nullopt;
}

int arch_number(std::string_view arch) {
  if (!arch.starts_with("sm_")) return 0;
  arch.remove_prefix(3);
  if (!arch.empty() && (arch.back() == 'a' || arch.back() == 'f')) arch.remove_suffix(1);
  if (arch.size() < 2 || arch.size() > 3) return 0;
  int number = 0;
  for (const char c : arch) {
    if (c < '0' || c > '9') return 0;
    number = number * 10 + (c - '0');
  }
  return number;
}

bool runs_on(std::string_view arch, int device) {
  const int made_for = arch_number(arch);
  if (made_for == 0) return false;
  if (arch.back() == 'a') return made_for == device;
  return made_for / 10 == device / 10 && made_for <= device;
}

void Writer::number(std::uint64_t value) {
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(value >> 8 * i);
}
void Writer::text(std::string_view value) {
  number(value.size());
  bytes += value;
}

std::string_view Reader::take(std::uint64_t count) {
  if (!ok || count > rest_.size()) {
    ok = false;
    return {};
  }
  const std::string_view taken = rest_.substr(0, static_cast<std::size_t>(count));
  rest_.remove_prefix(static_cast<std::size_t>(count));
  return taken;
}
std::uint64_t Reader::number() {
  std::uint64_t value = 0;
  const std::string_view taken = take(8);
  for (std::size_t i = 0; i < taken.size(); ++i)
    value |= static_cast<std::uint64_t>(static_cast<std::uint8_t>(taken[i])) << 8 * i;
  return value;
}
std::string_view Reader::text() { return take(number()); }

}  // namespace tessera::cuda
