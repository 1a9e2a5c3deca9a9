#include "cuda/pack.hpp"

#include <fstream>

#include "cuda/disk_cache.hpp"
#include "problem/fail.hpp"

namespace tessera::cuda {
namespace {

using problem::fail;

constexpr std::string_view magic = "TSPACK01";
constexpr std::size_t header_bytes = 8 + 8 + 8 + 32;  // magic, bytes of the file, bytes of the index, its digest

std::string_view bytes_of(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace

void write_pack(const std::string& path, const std::vector<KernelImage>& kernels) {
  Writer index;
  std::string bodies;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const KernelImage& kernel = kernels[i];
    bool replaced = false;
    for (std::size_t j = i + 1; j < kernels.size(); ++j)
      replaced |= kernels[j].text == kernel.text && kernels[j].arch == kernel.arch;
    if (replaced) continue;
    const std::string body = encode(kernel);
    index.text(bytes_of(kernel.text));
    for (const std::string* text : {&kernel.arch, &kernel.name, &kernel.spec}) index.text(*text);
    index.number(bodies.size());
    index.number(body.size());
    bodies += body;
  }
  Writer all;
  all.bytes = magic;
  all.number(header_bytes + index.bytes.size() + bodies.size());
  all.number(index.bytes.size());
  all.bytes += bytes_of(digest(index.bytes));
  std::string why;
  if (!write_file(path, all.bytes + index.bytes + bodies, why, 0666))  // to be handed on
    fail(Code::io, "the pack ", path, " cannot be written: ", why);
}

Pack::Pack(std::string path) : path_(std::move(path)) {
  auto refuse = [&](const std::string& what) { fail(Code::io, "the kernel pack ", path_, " is refused: ", what); };
  std::ifstream file(path_, std::ios::binary | std::ios::ate);
  if (!file) refuse("it cannot be opened");
  const std::uint64_t size = static_cast<std::uint64_t>(file.tellg());
  std::string header(header_bytes, '\0');
  file.seekg(0);
  if (!file.read(header.data(), static_cast<std::streamsize>(header.size()))) refuse("it is cut off, or no pack");
  if (!header.starts_with(magic.substr(0, 6))) refuse("it is no pack of this library");
  if (!header.starts_with(magic)) refuse("it is of another format; make it again with this version");
  Reader numbers(std::string_view(header).substr(8));
  const std::uint64_t whole = numbers.number(), index_bytes = numbers.number();
  if (whole != size)
    refuse("it should have " + std::to_string(whole) + " bytes and has " + std::to_string(size) + ": copied in part?");
  if (index_bytes > size - header_bytes) refuse("its index is damaged");
  std::string index(static_cast<std::size_t>(index_bytes), '\0');
  if (!file.read(index.data(), static_cast<std::streamsize>(index.size()))) refuse("its index cannot be read");
  if (std::string_view(header).substr(24) != bytes_of(digest(index))) refuse("its index is damaged");
  Reader reader(index);
  while (reader.ok && !reader.at_end()) {
    Entry entry;
    const std::string_view key = reader.text();
    if (key.size() == entry.text.size()) std::copy(key.begin(), key.end(), entry.text.begin());
    else reader.ok = false;
    for (std::string* text : {&entry.arch, &entry.name, &entry.spec}) *text = reader.text();
    entry.offset = reader.number() + header_bytes + index_bytes;
    entry.bytes = reader.number();
    if (reader.ok && (entry.offset > size || entry.bytes > size - entry.offset)) reader.ok = false;
    if (reader.ok) entries_.push_back(std::move(entry));
  }
  if (!reader.ok) refuse("its index is malformed");
}

const Pack::Entry* Pack::find(const Digest& text, int device) const {
  const Entry* best = nullptr;
  for (const Entry& entry : entries_) {
    if (entry.text != text || !runs_on(entry.arch, device)) continue;
    // "sm_90a" before "sm_90", "sm_89" before "sm_80".
    const auto rank = [](const Entry& e) { return 2 * arch_number(e.arch) + (e.arch.back() == 'a'); };
    if (!best || rank(entry) > rank(*best)) best = &entry;
  }
  return best;
}

KernelImage Pack::read(const Entry& entry) const {
  std::ifstream file(path_, std::ios::binary);
  std::string bytes(static_cast<std::size_t>(entry.bytes), '\0'), why = "it cannot be read";
  file.seekg(static_cast<std::streamoff>(entry.offset));
  std::optional<KernelImage> image;
  if (file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()))) image = decode(bytes, why);
  if (!image || image->text != entry.text)
    fail(Code::io, "the kernel ", entry.name, " for ", entry.arch, " in the pack ", path_,
         " is refused: ", image ? "it is another one" : why);
  return *image;
}

}  // namespace tessera::cuda
