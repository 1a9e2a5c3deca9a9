// Files that are what they claim to be, and a table of those that are not.
#include "io/safetensors.hpp"
#include "unit/failure_of.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

namespace tessera::io {
namespace {

std::vector<std::byte> to_bytes(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

// A file of this header and so many bytes of data: 0, 1, 2 ...
std::vector<std::byte> file_of(std::string_view header, std::size_t data_bytes) {
  std::uint64_t length = header.size();
  std::vector<std::byte> bytes(sizeof(length));
  std::memcpy(bytes.data(), &length, sizeof(length));
  const auto text = to_bytes(header);
  bytes.insert(bytes.end(), text.begin(), text.end());
  for (std::size_t i = 0; i < data_bytes; ++i) bytes.push_back(static_cast<std::byte>(i));
  return bytes;
}

class Folder {
 public:
  Folder() : path_(std::filesystem::temp_directory_path() / ("tessera_io_test_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string operator/(const char* name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

TEST(SafetensorsTest, ReadsAFile) {
  const auto bytes =
      file_of(R"({"__metadata__":{"origin":"here"},"x":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
              R"("flags":{"data_offsets":[24,27],"shape":[3],"dtype":"BOOL"}}   )",
              27);
  const Safetensors file = Safetensors::parse(bytes, "a file");
  ASSERT_EQ(file.entries().size(), 2u);
  EXPECT_EQ(file.entries()[0].name, "x");
  EXPECT_EQ(file.entries()[0].dtype, f32);
  EXPECT_EQ(file.entries()[0].shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(file.metadata().at("origin"), "here");
  const Tensor x = file.tensor("x");
  EXPECT_TRUE(x.read_only);
  EXPECT_EQ(x.rank, 2);
  EXPECT_EQ(x.stride[0], 3);
  EXPECT_EQ(x.stride[1], 1);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(x.data) % 64, 0u);
  EXPECT_EQ(x.as<const unsigned char>()[23], 23);
  EXPECT_EQ(file.tensor("flags").as<const unsigned char>()[2], 26);
  EXPECT_TRUE(file.contains("flags"));
  EXPECT_FALSE(file.contains("flag"));
}

TEST(SafetensorsTest, ViewsOutliveTheFirstOwner) {
  Tensor x;
  Safetensors copy = [&] {
    const Safetensors file =
        Safetensors::parse(file_of(R"({"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4), "f");
    x = file.tensor("x");
    return Safetensors(file);
  }();
  EXPECT_EQ(x.as<const unsigned char>()[3], 3);
  EXPECT_EQ(copy.tensor("x").data, x.data);
}

TEST(SafetensorsTest, EmptyThings) {
  EXPECT_TRUE(Safetensors::parse(file_of("{}", 0), "f").entries().empty());
  const Safetensors file = Safetensors::parse(
      file_of(
          R"({"scalar":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"none":{"dtype":"F32","shape":[0,4611686018427387904,8],"data_offsets":[0,0]}})",
          4),
      "f");
  EXPECT_EQ(file.tensor("scalar").rank, 0);
  EXPECT_EQ(file.tensor("scalar").elements(), 1);
  EXPECT_EQ(file.tensor("none").elements(), 0);
}

TEST(SafetensorsTest, MoreAxesThanAViewHas) {
  const Safetensors file =
      Safetensors::parse(file_of(R"({"x":{"dtype":"U8","shape":[1,1,1,1,1,2],"data_offsets":[0,2]}})", 2), "six.st");
  EXPECT_EQ(file.entries()[0].shape.size(), 6u);
  const Failure failure = failure_of([&] { file.tensor("x"); });
  EXPECT_EQ(failure.code, Code::io);
  EXPECT_NE(failure.text.find("six.st: tensor 'x' is of rank 6: at most 5"), std::string::npos) << failure.text;
  EXPECT_NE(failure_of([&] { file.tensor("y"); }).text.find("six.st: there is no tensor 'y'"), std::string::npos);
}

struct Row {
  const char* name;
  const char* header;
  std::size_t data_bytes;
  std::vector<const char*> parts;  // of the text
};

// clang-format off
const Row rows[] = {
    {"overlap", R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[3,7]}})", 7, {"tensor 'b' begins at byte 3", "tensor 'a' ends at 4", "overlap"}},
    {"the_same_bytes_twice", R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4, {"begins at byte 0", "ends at 4"}},
    {"gap", R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[5,9]}})", 9, {"tensor 'b' begins at byte 5", "bytes 4 to 5 belong to no tensor"}},
    {"gap_in_front", R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})", 6, {"begins at byte 2", "bytes 0 to 2"}},
    {"bytes_behind", R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 5, {"end at byte 4", "the data at 5"}},
    {"bytes_of_nothing", "{}", 3, {"end at byte 0", "the data at 3"}},
    {"cut_short", R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 3, {"tensor 'a' ends at byte 4", "3 bytes of data"}},
    {"backwards", R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[4,0]}})", 4, {"begins at byte 4", "at 0"}},
    {"misaligned", R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})", 6, {"tensor 'b' begins at byte 2", "4 bytes of F32"}},
    {"too_few_bytes", R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,20]}})", 20, {"F32[2, 3]", "24 bytes", "span 20"}},
    {"too_many_bytes", R"({"a":{"dtype":"BF16","shape":[3],"data_offsets":[0,8]}})", 8, {"BF16[3]", "6 bytes", "span 8"}},
    {"bytes_for_no_element", R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,4]}})", 4, {"F32[0]", "0 bytes", "span 4"}},
    {"overflow", R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0, {"F32[4294967296, 4294967296]", "2^63 - 1"}},
    {"extent_beyond_int64", R"({"a":{"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,0]}})", 0, {"9223372036854775808", "2^63 - 1"}},
    {"extent_beyond_uint64", R"({"a":{"dtype":"U8","shape":[99999999999999999999],"data_offsets":[0,0]}})", 0, {"shape of tensor 'a'", "99999999999999999999"}},
    {"extent_negative", R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,0]}})", 0, {"shape of tensor 'a' has the number -1"}},
    {"extent_broken", R"({"a":{"dtype":"U8","shape":[1.5],"data_offsets":[0,1]}})", 1, {"the number 1.5"}},
    {"extent_a_string", R"({"a":{"dtype":"U8","shape":["1"],"data_offsets":[0,1]}})", 1, {"shape of tensor 'a' has a string"}},
    {"shape_no_list", R"({"a":{"dtype":"U8","shape":1,"data_offsets":[0,1]}})", 1, {"shape of tensor 'a' has a number"}},
    {"shape_of_lists", R"({"a":{"dtype":"U8","shape":[[1]],"data_offsets":[0,1]}})", 1, {"shape of tensor 'a' has a list"}},
    {"shape_of_objects", R"({"a":{"dtype":"U8","shape":[{}],"data_offsets":[0,1]}})", 1, {"shape of tensor 'a' has an object"}},
    {"too_many_axes", R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})", 1, {"more than 32 extents"}},
    {"one_offset", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", 1, {"1 data_offsets"}},
    {"three_offsets", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}})", 1, {"more than 2 data_offsets"}},
    {"no_dtype", R"({"a":{"shape":[1],"data_offsets":[0,1]}})", 1, {"tensor 'a' lacks dtype"}},
    {"no_shape", R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", 1, {"tensor 'a' lacks shape"}},
    {"no_offsets", R"({"a":{"dtype":"U8","shape":[1]}})", 1, {"tensor 'a' lacks data_offsets"}},
    {"unknown_type", R"({"a":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}})", 8, {"tensor 'a' has the type 'F64'", "F32, BF16, F16, I32, I64, U8, BOOL"}},
    {"dtype_a_number", R"({"a":{"dtype":1,"shape":[1],"data_offsets":[0,1]}})", 1, {"dtype of tensor 'a' has a number"}},
    {"dtype_null", R"({"a":{"dtype":null,"shape":[1],"data_offsets":[0,1]}})", 1, {"dtype of tensor 'a' has null"}},
    {"unknown_member", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"stride":[1]}})", 1, {"tensor 'a' has a member 'stride'"}},
    {"name_twice", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", 2, {"the name 'a' stands twice"}},
    {"member_twice", R"({"a":{"dtype":"U8","shape":[1],"shape":[1],"data_offsets":[0,1]}})", 1, {"'shape' stands twice in tensor 'a'"}},
    {"metadata_twice", R"({"__metadata__":{},"__metadata__":{}})", 0, {"'__metadata__' stands twice"}},
    {"metadata_key_twice", R"({"__metadata__":{"x":"1","x":"2"}})", 0, {"'x' stands twice in the metadata"}},
    {"metadata_no_string", R"({"__metadata__":{"x":1}})", 0, {"metadata 'x' is a number"}},
    {"metadata_deep", R"({"__metadata__":{"x":{}}})", 0, {"metadata 'x' is an object"}},
    {"metadata_no_object", R"({"__metadata__":"x"})", 0, {"'__metadata__' is a string"}},
    {"tensor_no_object", R"({"a":[1]})", 0, {"'a' is a list in the header"}},
    {"a_list", "[]", 0, {"does not start with '{'"}},
    {"spaces_in_front", " {}", 0, {"does not start with '{'"}},
    {"no_header", "", 0, {"does not start with '{'"}},
    {"no_json", R"({"a":)", 0, {"the header is no JSON at byte"}},
    {"text_behind", "{}x", 0, {"the header is no JSON at byte"}},
    {"no_utf8", "{\"\xff\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, {"the header is no JSON at byte"}},
    {"control_characters_are_not_repeated", R"({"\u001b[2J":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}})", 8, {"tensor '?[2J'"}},
};
// clang-format on

TEST(SafetensorsTest, FilesThatAreNotWhatTheyClaim) {
  for (const Row& row : rows) {
    const auto bytes = file_of(row.header, row.data_bytes);
    const Failure failure = failure_of([&] { Safetensors::parse(bytes, "some.safetensors"); });
    EXPECT_EQ(name(failure.code), "io") << row.name << ": " << failure.text;
    EXPECT_TRUE(failure.text.starts_with("some.safetensors: ")) << failure.text;
    for (const char* part : row.parts)
      EXPECT_NE(failure.text.find(part), std::string::npos) << row.name << " lacks: " << part << "\n" << failure.text;
  }
}

TEST(SafetensorsTest, HeadersThatAreNone) {
  auto refused = [](std::vector<std::byte> bytes, const char* part) {
    const Failure failure = failure_of([&] { Safetensors::parse(bytes, "f"); });
    EXPECT_EQ(name(failure.code), "io") << failure.text;
    EXPECT_NE(failure.text.find(part), std::string::npos) << failure.text;
  };
  refused({}, "it has 0 bytes");
  refused(to_bytes("1234567"), "it has 7 bytes");
  refused(file_of(std::string_view("{}\0", 3), 0), "the header is no JSON at byte 2");
  refused(file_of(std::string_view("{}\0[[", 5), 0), "the header is no JSON at byte 2");
  auto bytes = file_of("{}", 0);
  bytes[0] = std::byte{3};  // one more than there is
  refused(bytes, "the header has 3 bytes, the file only 2");
  bytes[7] = std::byte{0xff};
  refused(bytes, "at most 100000000 are allowed");
  std::string deep(1'000'000, '[');
  refused(file_of("{\"a\":" + deep, 0), "'a' is a list");
}

// Every prefix of a good file is refused.
TEST(SafetensorsTest, FilesCutShortAnywhere) {
  const auto bytes = file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const std::vector<std::byte> part(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_EQ(failure_of([&] { Safetensors::parse(part, "f"); }).code, Code::io) << size;
  }
}

TEST(SafetensorsTest, WritesWhatItReads) {
  const Folder folder;
  const std::string path = folder / "round.safetensors";
  const std::vector<std::byte> data = to_bytes("0123456789abcdef0123456789abcdef");
  const std::span<const std::byte> all(data);
  const Entry entries[] = {{"flags \"quoted\" \xc3\xa9", b8, {3}, all.first(3)},
                           {"small", bf16, {1, 2, 1}, all.subspan(3, 4)},
                           {"long", i64, {2}, all.subspan(8, 16)},
                           {"none", f32, {0, 7}, {}},
                           {"half", f16, {1}, all.subspan(2, 2)},
                           {"int", i32, {2}, all.subspan(0, 8)},
                           {"byte", u8, {}, all.subspan(9, 1)}};
  write_safetensors(path, entries, {{"origin", "a test"}});
  const Safetensors file = Safetensors::read(path);
  ASSERT_EQ(file.entries().size(), std::size(entries));
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"origin", "a test"}}));
  for (const Entry& written : entries) {
    const auto found = std::ranges::find(file.entries(), written.name, &Entry::name);
    ASSERT_NE(found, file.entries().end()) << written.name;
    EXPECT_EQ(found->dtype, written.dtype);
    EXPECT_EQ(found->shape, written.shape);
    EXPECT_TRUE(std::ranges::equal(found->bytes, written.bytes)) << written.name;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(file.tensor(written.name).data) %
                  static_cast<std::uintptr_t>(size_bytes(written.dtype)),
              0u);
  }
  // Read and parsed are the same.
  std::ifstream stream(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  const Safetensors parsed = Safetensors::parse(to_bytes(text), path);
  ASSERT_EQ(parsed.entries().size(), file.entries().size());
  for (std::size_t i = 0; i < parsed.entries().size(); ++i)
    EXPECT_TRUE(std::ranges::equal(parsed.entries()[i].bytes, file.entries()[i].bytes));
}

TEST(SafetensorsTest, FilesThatCannotBeReadOrWritten) {
  const Folder folder;
  auto refused = [](const std::function<void()>& call, const std::string& path, const char* part) {
    const Failure failure = failure_of(call);
    EXPECT_EQ(name(failure.code), "io") << failure.text;
    EXPECT_TRUE(failure.text.starts_with(path + ": ")) << failure.text;
    EXPECT_NE(failure.text.find(part), std::string::npos) << failure.text;
  };
  const std::string missing = folder / "missing", here = folder / ".", nowhere = folder / "no/such/folder";
  refused([&] { Safetensors::read(missing); }, missing, "there is no such file");
  refused([&] { Safetensors::read(here); }, here, "no regular file");
  refused([&] { Safetensors::read("/dev/zero"); }, "/dev/zero", "no regular file");
  refused([&] { write_safetensors(nowhere, {}); }, nowhere, "cannot be opened for writing");
  const auto bytes = to_bytes("12345678");
  const std::string path = folder / "never";
  auto write = [&](std::vector<Entry> entries) { return [&path, entries] { write_safetensors(path, entries); }; };
  refused(write({{"a", f32, {3}, bytes}}), path, "F32[3] but has 8 bytes");
  refused(write({{"a", DType::none, {8}, bytes}}), path, "has the type none");
  refused(write({{"a", f32, {-2}, bytes}}), path, "an extent of -2");
  refused(write({{"a", f32, {2}, bytes}, {"a", f32, {2}, bytes}}), path, "the name 'a' is taken");
  refused(write({{"__metadata__", f32, {2}, bytes}}), path, "is taken");
  refused(write({{"\xff", f32, {2}, bytes}}), path, "not UTF-8");
  EXPECT_FALSE(std::filesystem::exists(path)) << "refused before the file was made";
}

// A file that shrinks or is cut on disk.
TEST(SafetensorsTest, FilesOnDiskCutShort) {
  const Folder folder;
  const std::string path = folder / "cut.safetensors";
  const auto bytes = to_bytes("12345678");
  const Entry entries[] = {{"a", f32, {2}, bytes}};
  write_safetensors(path, entries);
  for (auto size = std::filesystem::file_size(path); size-- > 0;) {
    std::filesystem::resize_file(path, size);
    EXPECT_EQ(failure_of([&] { Safetensors::read(path); }).code, Code::io) << size;
  }
}

}  // namespace
}  // namespace tessera::io
