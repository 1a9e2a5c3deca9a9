#include "io/file.hpp"

#include <filesystem>
#include <new>
#include <utility>

namespace tessera::io {

std::string printable(std::string_view text) {
  constexpr std::size_t longest = 80;
  std::string shown = "'";
  for (const char c : text.substr(0, longest)) shown += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  return shown + (text.size() > longest ? "...'" : "'");
}

std::shared_ptr<std::byte> allocate(std::uint64_t bytes, const std::string& file) {
  constexpr std::align_val_t alignment{64};
  try {
    auto* memory = static_cast<std::byte*>(::operator new(bytes ? bytes : 1, alignment));
    return {memory, [](std::byte* p) { ::operator delete(p, alignment); }};
  } catch (const std::bad_alloc&) {
    throw Error(Code::out_of_memory, file + ": there is no memory for its " + std::to_string(bytes) + " bytes of data");
  }
}

File::File(std::string path) : path_(std::move(path)) {
  std::error_code problem;
  if (!std::filesystem::exists(path_, problem)) fail(path_, "there is no such file");
  if (!std::filesystem::is_regular_file(path_, problem)) fail(path_, "it is no regular file");
  bytes_ = std::filesystem::file_size(path_, problem);
  stream_.open(path_, std::ios::binary);
  if (problem || !stream_) fail(path_, "it cannot be opened", problem ? " (" + problem.message() + ")" : "");
}

void File::read(std::byte* to, std::uint64_t count) {
  stream_.read(reinterpret_cast<char*>(to), static_cast<std::streamsize>(count));
  if (static_cast<std::uint64_t>(stream_.gcount()) != count)
    fail(path_, "reading stopped after ", stream_.gcount(), " of ", count, " bytes");
}

}  // namespace tessera::io
