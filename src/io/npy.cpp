// The npy format: 6 bytes of magic, 2 of version, the header's length in 2 bytes (version 1) or 4 (version 2), a header
// that is a dictionary as Python writes it, the elements.
// Must not know: attention.
#include "io/npy.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <sstream>
#include <string_view>
#include <tuple>

#include "io/file.hpp"

namespace tessera::io {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little-endian, and so is what reads them here");

constexpr std::string_view magic = "\x93NUMPY";
constexpr std::size_t fixed_bytes = 8;             // magic and version
constexpr std::uint64_t max_header_bytes = 65535;  // as much as version 1 can say; arrays of records alone have more

struct TypeName {
  DType dtype;
  std::string_view name;
};
constexpr TypeName type_names[] = {{DType::f32, "<f4"}, {DType::f16, "<f2"}, {DType::i32, "<i4"}, {DType::i64, "<i8"},
                                   {DType::u8, "|u1"},  {DType::b8, "|b1"},  {DType::u8, "<u1"},  {DType::b8, "<b1"}};
constexpr std::string_view known_types = "<f4, <f2, <i4, <i8, |u1 and |b1 can be read";

struct Header {
  std::optional<std::string_view> descr;
  std::optional<bool> fortran_order;
  std::optional<std::vector<std::int64_t>> shape;
};

// Reads {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), } and nothing else.
class HeaderReader {
 public:
  HeaderReader(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  Header read() {
    Header header;
    expect('{');
    while (!take('}')) {
      const std::string_view key = string("a key");
      expect(':');
      if (key == "descr") once(header.descr, key) = descr();
      else if (key == "fortran_order") once(header.fortran_order, key) = truth();
      else if (key == "shape") once(header.shape, key) = shape();
      else fail(file_, "the header has a key ", printable(key), ": descr, fortran_order and shape are allowed");
      if (take(',')) continue;
      expect('}');
      break;
    }
    skip_spaces();
    if (at_ != text_.size()) wrong("the end");
    const char* const missing = !header.descr           ? "descr"
                                : !header.fortran_order ? "fortran_order"
                                : !header.shape         ? "shape"
                                                        : nullptr;
    if (missing) fail(file_, "the header lacks ", missing);
    return header;
  }

 private:
  template <class T>
  std::optional<T>& once(std::optional<T>& value, std::string_view key) const {
    if (value) fail(file_, "the key ", printable(key), " stands twice in the header");
    return value;
  }
  void skip_spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool take(char c) {
    skip_spaces();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) wrong(std::string("'") + c + "'");
  }
  [[noreturn]] void wrong(const std::string& wanted) const {
    fail(file_, "the header has ", at_ < text_.size() ? printable(text_.substr(at_)) : "its end", " at byte ", at_,
         " where ", wanted, " must stand");
  }
  std::string_view string(const char* wanted) {
    skip_spaces();
    if (at_ == text_.size() || (text_[at_] != '\'' && text_[at_] != '"')) wrong(wanted);
    const std::size_t end = text_.find(text_[at_], at_ + 1);
    if (end == text_.npos) wrong(wanted);
    const std::string_view inner = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return inner;
  }
  std::string_view descr() {
    skip_spaces();
    if (at_ < text_.size() && text_[at_] == '[') fail(file_, "it is an array of records: ", known_types);
    return string("a type's name");
  }
  bool truth() {
    skip_spaces();
    for (const std::string_view word : {"True", "False"})
      if (text_.substr(at_).starts_with(word)) return at_ += word.size(), word == "True";
    wrong("True or False");
  }
  std::int64_t extent() {
    skip_spaces();
    const std::size_t begin = at_;
    std::int64_t value = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_)
      if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, text_[at_] - '0', &value))
        fail(file_, "the shape has an extent of ", printable(text_.substr(begin)), ": at most 2^63 - 1 is allowed");
    if (at_ == begin) wrong("an extent");
    return value;
  }
  std::vector<std::int64_t> shape() {
    std::vector<std::int64_t> extents;
    expect('(');
    while (!take(')')) {
      extents.push_back(extent());
      if (extents.size() > std::size_t{max_rank})
        fail(file_, "the array has more than ", max_rank, " axes: at most that many can be viewed");
      if (take(',')) continue;
      if (extents.size() == 1) wrong("','");  // (3) is a number to Python, (3,) a shape
      expect(')');
      break;
    }
    return extents;
  }

  std::string_view text_;
  const std::string& file_;
  std::size_t at_ = 0;
};

// Where things lie in a file of `file_bytes`.
struct Layout {
  std::uint64_t header_begin = 0, header_bytes = 0;
  std::uint64_t data_begin() const { return header_begin + header_bytes; }
};
// first: the bytes up to the header, or all of a shorter file.
Layout layout_of(std::span<const std::byte> first, std::uint64_t file_bytes, const std::string& file) {
  if (first.size() < fixed_bytes || std::memcmp(first.data(), magic.data(), magic.size()) != 0)
    fail(file, "it does not start with the magic of an npy file");
  const int version = std::to_integer<int>(first[6]), minor = std::to_integer<int>(first[7]);
  if ((version != 1 && version != 2) || minor != 0)
    fail(file, "it is of version ", version, ".", minor, ": 1.0 and 2.0 can be read");
  const std::size_t length_bytes = version == 1 ? 2 : 4;
  if (first.size() < fixed_bytes + length_bytes)
    fail(file, "it has ", file_bytes, " bytes and ends within the length of its header");
  Layout at;
  for (std::size_t i = 0; i < length_bytes; ++i)
    at.header_bytes |= std::to_integer<std::uint64_t>(first[fixed_bytes + i]) << (8 * i);
  at.header_begin = fixed_bytes + length_bytes;
  if (at.header_bytes > max_header_bytes)
    fail(file, "the header has ", at.header_bytes, " bytes: at most ", max_header_bytes, " are allowed");
  if (at.header_bytes > file_bytes - at.header_begin)
    fail(file, "the header has ", at.header_bytes, " bytes, the file only ", file_bytes - at.header_begin,
         " after its length: it is cut short");
  return at;
}

// A view without data of what the header says. Refuses a file with fewer or more bytes than that.
Tensor view_of(const Header& header, std::uint64_t data_bytes, const std::string& file) {
  const auto* type = std::ranges::find(type_names, *header.descr, &TypeName::name);
  if (type == std::end(type_names)) {
    const bool big = header.descr->starts_with('>');
    fail(file, "it has the type ", printable(*header.descr), big ? ", of big-endian bytes: " : ": ", known_types);
  }
  if (*header.fortran_order) fail(file, "it is in Fortran order (columns first): only C order can be read");
  Tensor t;
  t.dtype = type->dtype, t.read_only = true, t.rank = static_cast<int>(header.shape->size());
  // An extent of 0 may stand beside extents whose product overflows; the strides of an empty view lead nowhere.
  const bool is_empty = std::ranges::find(*header.shape, 0) != header.shape->end();
  std::int64_t next = 1;
  bool fits = true;
  for (int axis = t.rank - 1; axis >= 0; --axis) {
    t.shape[axis] = (*header.shape)[static_cast<std::size_t>(axis)], t.stride[axis] = next;
    if (__builtin_mul_overflow(next, std::max<std::int64_t>(t.shape[axis], 1), &next)) fits = false, next = 1;
  }
  std::int64_t bytes = 0;
  if (!is_empty && (!fits || __builtin_mul_overflow(next, size_bytes(t.dtype), &bytes)))
    fail(file, "its shape and type ", *header.descr, " take more than 2^63 - 1 bytes");
  if (static_cast<std::uint64_t>(bytes) != data_bytes)
    fail(file, "it is ", t, ", ", bytes, " bytes, but ", data_bytes, " follow the header");
  return t;
}

void check_booleans(const Tensor& t, const std::byte* data, std::uint64_t bytes, const std::string& file) {
  if (t.dtype != DType::b8) return;
  for (std::uint64_t i = 0; i < bytes; ++i)
    if (std::to_integer<int>(data[i]) > 1)
      fail(file, "element ", i, " is a boolean of ", std::to_integer<int>(data[i]), ": 0 and 1 are allowed");
}

// take(to, count): the next bytes of the file, those after the header's length.
template <class Take>
std::pair<std::shared_ptr<const std::byte>, Tensor> read_rest(const Layout& at, std::uint64_t file_bytes,
                                                              const std::string& file, Take&& take) {
  std::string text(at.header_bytes, '\0');
  take(reinterpret_cast<std::byte*>(text.data()), at.header_bytes);
  const Header header = HeaderReader(text, file).read();
  const std::uint64_t bytes = file_bytes - at.data_begin();
  Tensor tensor = view_of(header, bytes, file);
  const std::shared_ptr<std::byte> data = allocate(bytes, file);
  take(data.get(), bytes);
  check_booleans(tensor, data.get(), bytes, file);
  tensor.data = data.get();
  return {data, tensor};
}

}  // namespace

Npy Npy::parse(std::span<const std::byte> bytes, std::string name) {
  const Layout at = layout_of(bytes, bytes.size(), name);
  std::uint64_t next = at.header_begin;
  Npy result;
  std::tie(result.data_, result.tensor_) = read_rest(at, bytes.size(), name, [&](std::byte* to, std::uint64_t count) {
    std::ranges::copy(bytes.subspan(next, count), to);
    next += count;
  });
  return result;
}

Npy Npy::read(const std::string& path) {
  File file(path);
  const auto take = [&](std::byte* to, std::uint64_t count) { file.read(to, count); };
  std::byte first[fixed_bytes + 4];
  const std::uint64_t some = std::min<std::uint64_t>(file.bytes(), sizeof first);
  take(first, some);
  const Layout at = layout_of({first, some}, file.bytes(), path);
  file.seek(at.header_begin);
  Npy result;
  std::tie(result.data_, result.tensor_) = read_rest(at, file.bytes(), path, take);
  return result;
}

}  // namespace tessera::io
