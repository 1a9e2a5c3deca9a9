// The safetensors format: 8 bytes of header length, a JSON header, the tensors' bytes without gaps.
// Must not know: attention.
#include "io/safetensors.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>

#include "io/file.hpp"

namespace tessera::io {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian, and so is what reads it here");

constexpr std::size_t length_bytes = 8;
constexpr std::uint64_t max_header_bytes = 100'000'000;  // the format's own limit
constexpr std::size_t max_rank_read = 32;

struct TypeName {
  DType dtype;
  std::string_view name;
};
constexpr TypeName type_names[] = {{DType::f32, "F32"}, {DType::bf16, "BF16"}, {DType::f16, "F16"}, {DType::i32, "I32"},
                                   {DType::i64, "I64"}, {DType::u8, "U8"},     {DType::b8, "BOOL"}};

std::string known_types() {
  std::string text;
  for (const TypeName& t : type_names) text.append(text.empty() ? "" : ", ").append(t.name);
  return text;
}

// Bytes of shape x type; none beyond 63 bits.
std::optional<std::uint64_t> byte_count(const std::vector<std::int64_t>& shape, DType dtype) {
  std::int64_t bytes = size_bytes(dtype);
  if (std::ranges::find(shape, 0) != shape.end()) return 0;
  for (const std::int64_t extent : shape)
    if (__builtin_mul_overflow(bytes, extent, &bytes)) return std::nullopt;
  return static_cast<std::uint64_t>(bytes);
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text.append(i ? ", " : "").append(std::to_string(shape[i]));
  return text + "]";
}

// What the header says of one tensor, before it is believed.
struct Claim {
  std::string name, dtype;
  std::vector<std::int64_t> shape;
  std::vector<std::uint64_t> offsets;
  bool has_dtype = false, has_shape = false, has_offsets = false;
};

// Takes the header in as it is parsed: only the three levels and the kinds of values that the format has get through,
// and a key that comes twice does not.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderReader(const std::string& file) : file_(file) {}

  std::vector<Claim> claims;
  std::map<std::string, std::string> metadata;

  bool start_object(std::size_t) override {
    if (depth_ == 0) return ++depth_, true;
    if (depth_ == 1) {
      ++depth_, members_.clear();
      if (!in_metadata_) claims.push_back({.name = key_, .dtype = {}, .shape = {}, .offsets = {}});
      return true;
    }
    wrong("an object");
  }
  bool end_object() override {
    if (--depth_ == 1 && !in_metadata_) {
      const Claim& c = claims.back();
      if (!c.has_dtype || !c.has_shape || !c.has_offsets)
        fail(file_, "tensor ", printable(c.name), " lacks ",
             !c.has_dtype   ? "dtype"
             : !c.has_shape ? "shape"
                            : "data_offsets");
    }
    return true;
  }
  bool key(string_t& text) override {
    if (depth_ == 1) {
      if (!names_.insert(text).second) fail(file_, "the name ", printable(text), " stands twice in the header");
      key_ = text, in_metadata_ = text == "__metadata__";
      return true;
    }
    if (!members_.insert(text).second)
      fail(file_, printable(text), " stands twice in ", in_metadata_ ? "the metadata" : "tensor " + printable(key_));
    if (!in_metadata_ && text != "dtype" && text != "shape" && text != "data_offsets")
      fail(file_, "tensor ", printable(key_), " has a member ", printable(text),
           ": dtype, shape and data_offsets are allowed");
    member_ = text;
    return true;
  }
  bool start_array(std::size_t) override {
    if (depth_ != 2 || in_metadata_ || in_array_ || member_ == "dtype") wrong("a list");
    (member_ == "shape" ? claims.back().has_shape : claims.back().has_offsets) = true;
    return in_array_ = true;
  }
  bool end_array() override { return in_array_ = false, true; }
  bool string(string_t& text) override {
    if (depth_ == 2 && in_metadata_) return metadata.emplace(member_, text), true;
    if (depth_ != 2 || member_ != "dtype" || in_array_) wrong("a string");
    claims.back().dtype = text, claims.back().has_dtype = true;
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (!in_array_) wrong("a number");
    Claim& claim = claims.back();
    if (member_ == "data_offsets") {
      claim.offsets.push_back(value);
      if (claim.offsets.size() > 2) fail(file_, "tensor ", printable(key_), " has more than 2 data_offsets");
      return true;
    }
    if (value > static_cast<std::uint64_t>(INT64_MAX))
      fail(file_, "tensor ", printable(key_), " has an extent of ", value, ": at most 2^63 - 1 is allowed");
    claim.shape.push_back(static_cast<std::int64_t>(value));
    if (claim.shape.size() > max_rank_read)
      fail(file_, "tensor ", printable(key_), " has more than ", max_rank_read, " extents");
    return true;
  }
  bool number_integer(number_integer_t value) override { wrong("the number " + std::to_string(value)); }
  bool number_float(number_float_t, const string_t& text) override { wrong("the number " + text); }
  bool null() override { wrong("null"); }
  bool boolean(bool) override { wrong("a truth value"); }
  bool binary(binary_t&) override { wrong("binary data"); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& problem) override {
    fail(file_, "the header is no JSON at byte ", position, " (", problem.what(), ")");
  }

 private:
  [[noreturn]] void wrong(const std::string& what) const {
    if (depth_ == 0) fail(file_, "the header is ", what, ": it must be an object of tensors");
    if (depth_ == 1)
      fail(file_, printable(key_), " is ", what,
           " in the header: a tensor is an object of dtype, shape and data_offsets");
    if (in_metadata_) fail(file_, "metadata ", printable(member_), " is ", what, ": only strings are allowed");
    fail(file_, member_, " of tensor ", printable(key_), " has ", what, ": ",
         member_ == "dtype" ? "a type's name is allowed" : "a list of numbers from 0 is allowed");
  }

  const std::string& file_;
  int depth_ = 0;
  bool in_metadata_ = false, in_array_ = false;
  std::string key_, member_;
  std::set<std::string> names_, members_;
};

struct Header {
  std::vector<Entry> entries;                                   // sorted by place, no bytes yet
  std::vector<std::pair<std::uint64_t, std::uint64_t>> places;  // [begin, end) of each within the data
  std::map<std::string, std::string> metadata;
};

Header read_header(std::string_view text, std::uint64_t data_bytes, const std::string& file) {
  if (text.empty() || text[0] != '{') fail(file, "the header does not start with '{'");
  // To the parser a zero byte is the end of its input: whatever followed would go unread.
  if (const std::size_t zero = text.find('\0'); zero != text.npos)
    fail(file, "the header is no JSON at byte ", zero, ": a zero byte");
  HeaderReader reader(file);
  nlohmann::json::sax_parse(text.begin(), text.end(), &reader);
  std::ranges::stable_sort(reader.claims, {}, [](const Claim& c) { return c.offsets; });

  Header header;
  header.metadata = std::move(reader.metadata);
  std::uint64_t covered = 0;
  for (Claim& c : reader.claims) {
    const std::string tensor = "tensor " + printable(c.name);
    const auto* type = std::ranges::find(type_names, std::string_view(c.dtype), &TypeName::name);
    if (type == std::end(type_names))
      fail(file, tensor, " has the type ", printable(c.dtype), ": ", known_types(), " can be read");
    if (c.offsets.size() != 2)
      fail(file, tensor, " has ", c.offsets.size(), " data_offsets: there are 2, begin and end");
    const auto [begin, end] = std::pair(c.offsets[0], c.offsets[1]);
    if (begin > end) fail(file, tensor, " begins at byte ", begin, " and ends before it, at ", end);
    if (end > data_bytes)
      fail(file, tensor, " ends at byte ", end, ", the file has ", data_bytes, " bytes of data: is it cut short?");
    const auto bytes = byte_count(c.shape, type->dtype);
    if (!bytes) fail(file, tensor, " is ", c.dtype, shape_text(c.shape), ": that is more than 2^63 - 1 bytes");
    if (*bytes != end - begin)
      fail(file, tensor, " is ", c.dtype, shape_text(c.shape), ", ", *bytes, " bytes, but its data_offsets span ",
           end - begin);
    if (begin % static_cast<std::uint64_t>(size_bytes(type->dtype)) != 0)
      fail(file, tensor, " begins at byte ", begin, ", which is no multiple of the ", size_bytes(type->dtype),
           " bytes of ", c.dtype);
    if (begin < covered)
      fail(file, tensor, " begins at byte ", begin, ", tensor ", printable(header.entries.back().name), " ends at ",
           covered, ": they overlap");
    if (begin > covered)
      fail(file, tensor, " begins at byte ", begin, ": bytes ", covered, " to ", begin, " belong to no tensor");
    covered = end;
    header.entries.push_back({std::move(c.name), type->dtype, std::move(c.shape), {}});
    header.places.emplace_back(begin, end);
  }
  if (covered != data_bytes)
    fail(file, "the tensors end at byte ", covered, ", the data at ", data_bytes,
         ": the bytes between belong to no tensor");
  return header;
}

std::uint64_t header_length(const std::byte* bytes, std::uint64_t file_bytes, const std::string& file) {
  std::uint64_t length = 0;
  std::memcpy(&length, bytes, length_bytes);
  if (length > max_header_bytes)
    fail(file, "the header has ", length, " bytes: at most ", max_header_bytes,
         " are allowed; is this a safetensors file?");
  if (length > file_bytes - length_bytes)
    fail(file, "the header has ", length, " bytes, the file only ", file_bytes - length_bytes,
         " after the header's length: it is cut short");
  return length;
}

// Points the entries at their bytes.
std::vector<Entry> place(Header& header, const std::byte* data) {
  for (std::size_t i = 0; i < header.entries.size(); ++i) {
    const auto [begin, end] = header.places[i];
    header.entries[i].bytes = {data + begin, end - begin};
  }
  return std::move(header.entries);
}

}  // namespace

Safetensors Safetensors::parse(std::span<const std::byte> bytes, std::string name) {
  if (bytes.size() < length_bytes)
    fail(name, "it has ", bytes.size(), " bytes, the header's length alone takes ", length_bytes);
  const std::uint64_t header_bytes = header_length(bytes.data(), bytes.size(), name);
  const auto text = bytes.subspan(length_bytes, header_bytes), data = bytes.subspan(length_bytes + header_bytes);
  Header header = read_header({reinterpret_cast<const char*>(text.data()), text.size()}, data.size(), name);
  const std::shared_ptr<std::byte> copy = allocate(data.size(), name);
  std::ranges::copy(data, copy.get());
  Safetensors result;
  result.name_ = std::move(name), result.data_ = copy;
  result.entries_ = place(header, copy.get()), result.metadata_ = std::move(header.metadata);
  return result;
}

Safetensors Safetensors::read(const std::string& path) {
  File file(path);
  const auto take = [&](std::byte* to, std::uint64_t count) { file.read(to, count); };
  if (file.bytes() < length_bytes)
    fail(path, "it has ", file.bytes(), " bytes, the header's length alone takes ", length_bytes);
  std::byte length[length_bytes];
  take(length, length_bytes);
  std::string text(header_length(length, file.bytes(), path), '\0');
  take(reinterpret_cast<std::byte*>(text.data()), text.size());
  const std::uint64_t data_bytes = file.bytes() - length_bytes - text.size();
  Header header = read_header(text, data_bytes, path);
  const std::shared_ptr<std::byte> data = allocate(data_bytes, path);
  take(data.get(), data_bytes);
  Safetensors result;
  result.name_ = path, result.data_ = data;
  result.entries_ = place(header, data.get()), result.metadata_ = std::move(header.metadata);
  return result;
}

const Entry* Safetensors::find(std::string_view name) const {
  const auto found = std::ranges::find(entries_, name, &Entry::name);
  return found == entries_.end() ? nullptr : &*found;
}

Tensor Safetensors::tensor(std::string_view name) const {
  const Entry* entry = find(name);
  if (!entry) fail(name_, "there is no tensor ", printable(name), " among its ", entries_.size());
  if (entry->shape.size() > max_rank)
    fail(name_, "tensor ", printable(name), " is of rank ", entry->shape.size(), ": at most ", max_rank,
         " can be viewed");
  Tensor t;
  t.data = const_cast<std::byte*>(entry->bytes.data()), t.read_only = true;
  t.dtype = entry->dtype, t.rank = static_cast<int>(entry->shape.size());
  // An extent of 0 may stand beside extents whose product overflows; the strides of an empty view lead nowhere.
  std::int64_t next = 1;
  for (int axis = t.rank - 1; axis >= 0; --axis) {
    t.shape[axis] = entry->shape[static_cast<std::size_t>(axis)], t.stride[axis] = next;
    if (__builtin_mul_overflow(next, std::max<std::int64_t>(t.shape[axis], 1), &next)) next = 1;
  }
  return t;
}

void write_safetensors(const std::string& path, std::span<const Entry> entries,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<const Entry*> order;
  for (const Entry& e : entries) order.push_back(&e);
  std::ranges::stable_sort(order, std::greater{}, [](const Entry* e) { return size_bytes(e->dtype); });

  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t place = 0;
  for (const Entry* e : order) {
    const std::string tensor = "tensor " + printable(e->name);
    const auto* type = std::ranges::find(type_names, e->dtype, &TypeName::dtype);
    if (type == std::end(type_names))
      fail(path, tensor, " has the type ", e->dtype, ": ", known_types(), " can be written");
    for (const std::int64_t extent : e->shape)
      if (extent < 0) fail(path, tensor, " has an extent of ", extent, ": 0 or more is allowed");
    const auto bytes = byte_count(e->shape, e->dtype);
    if (!bytes || *bytes != e->bytes.size())
      fail(path, tensor, " is ", type->name, shape_text(e->shape), " but has ", e->bytes.size(), " bytes");
    if (e->name == "__metadata__" || header.contains(e->name)) fail(path, "the name ", printable(e->name), " is taken");
    header[e->name] = {{"dtype", type->name}, {"shape", e->shape}, {"data_offsets", {place, place + *bytes}}};
    place += *bytes;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception& problem) {
    fail(path, "a name is not UTF-8 (", problem.what(), ")");
  }
  text.resize((text.size() + length_bytes - 1) / length_bytes * length_bytes, ' ');
  if (text.size() > max_header_bytes)
    fail(path, "its header would have ", text.size(), " bytes: at most ", max_header_bytes, " are allowed");

  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  if (!file) fail(path, "it cannot be opened for writing");
  const std::uint64_t length = text.size();
  file.write(reinterpret_cast<const char*>(&length), length_bytes);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  for (const Entry* e : order)
    file.write(reinterpret_cast<const char*>(e->bytes.data()), static_cast<std::streamsize>(e->bytes.size()));
  file.close();
  if (!file) fail(path, "it could not be written whole");
}

}  // namespace tessera::io
