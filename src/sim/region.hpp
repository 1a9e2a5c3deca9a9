// The global memory that kernels may touch. As soon as one region is registered, a checked kernel that touches anything
// else is reported; without any, global memory is not checked. Thread-safe.
// Must not know: the machine.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tessera::sim {

enum class Content : std::uint8_t {
  given,     // filled by the caller
  constant,  // filled by the caller; a kernel that writes it is reported
  nothing,   // a kernel that reads what no kernel, upload or fill wrote before is reported
};

// What the machine knows of a region. Ids are never used twice.
struct RegionInfo {
  std::uint64_t id = 0;
  std::string name{};
  char *begin = nullptr, *end = nullptr;
  Content content = Content::given;
  std::shared_ptr<std::uint8_t> written{};  // Content::nothing: of each four bytes, a bit for each that was written
};

// Registers memory that belongs to someone else, for as long as this lives.
class Region {
 public:
  Region(std::string name, const void* data, std::size_t bytes, Content content = Content::given);
  ~Region();
  Region(Region&& other) noexcept : id_(other.id_) { other.id_ = 0; }
  Region& operator=(Region&&) = delete;

 private:
  std::uint64_t id_;
};

// Memory of its own, registered: its end stands against a page that cannot be touched (up to `alignment`), it is full
// of NaN in every format, and what stands around it is looked after.
class Memory {
 public:
  Memory(std::string name, std::size_t bytes, Content content = Content::given, std::size_t alignment = 16);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  template <class T = char>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  std::size_t bytes() const { return bytes_; }
  // Whether all that stands around it is as it was.
  bool intact() const;

 private:
  std::size_t bytes_, mapped_;
  char *map_, *data_;
  std::unique_ptr<Region> region_;
};

// All regions by address. A launch works on the list as it was when it began.
using Regions = std::vector<RegionInfo>;
std::shared_ptr<const Regions> regions();
// The region that holds this byte, or null.
const RegionInfo* region_at(const Regions& list, const void* p);
// The host wrote there (upload, fill): it is not uninitialised any more, or it is again.
void mark_written(const void* p, std::size_t bytes, bool written = true);
// Memory of another name next to this address, for error messages.
std::string near_text(const Regions& list, const void* p);

}  // namespace tessera::sim
