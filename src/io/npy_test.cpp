#include "io/npy.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

using namespace tessera;
using io::Npy;

namespace {

// A file of version 1 or 2 with this header and these bytes behind it.
std::string file_of(const std::string& header, const std::string& data, int version = 1) {
  std::string file = "\x93NUMPY";
  file += static_cast<char>(version);
  file += '\0';
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i) file += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return file + header + data;
}
std::string header_of(const std::string& type, const std::string& shape, const std::string& fortran = "False") {
  return "{'descr': '" + type + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }      \n";
}
Npy parse(const std::string& file) { return Npy::parse(std::as_bytes(std::span(file.data(), file.size())), "x.npy"); }

std::string refusal(const std::string& file) {
  try {
    parse(file);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::io);
    EXPECT_TRUE(std::string_view(error.what()).starts_with("x.npy: ")) << error.what();
    return error.what();
  }
  return "it was read";
}
#define EXPECT_REFUSED(file, word) EXPECT_NE(refusal(file).find(word), std::string::npos) << refusal(file)

template <class T>
std::string bytes_of(std::initializer_list<T> values) {
  std::string bytes;
  for (const T value : values) bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  return bytes;
}

TEST(NpyTest, ReadsBothVersions) {
  const std::string data = bytes_of({1.5f, -2.0f, 3.0f, 4.0f, 5.0f, 6.0f});
  for (const int version : {1, 2}) {
    const Npy npy = parse(file_of(header_of("<f4", "(2, 3)"), data, version));
    const Tensor& t = npy.tensor();
    EXPECT_EQ(t.dtype, f32);
    EXPECT_TRUE(t.read_only);
    ASSERT_EQ(t.rank, 2);
    EXPECT_EQ(t.shape[0], 2);
    EXPECT_EQ(t.shape[1], 3);
    EXPECT_EQ(t.stride[0], 3);
    EXPECT_EQ(t.stride[1], 1);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(t.data) % 64, 0u);
    EXPECT_EQ(std::memcmp(t.data, data.data(), data.size()), 0);
  }
}

TEST(NpyTest, ReadsEveryType) {
  const std::pair<const char*, DType> types[] = {{"<f4", f32}, {"<f2", f16}, {"<i4", i32}, {"<i8", i64},
                                                 {"|u1", u8},  {"|b1", b8},  {"<u1", u8},  {"<b1", b8}};
  for (const auto& [name, dtype] : types) {
    const auto size = static_cast<std::size_t>(size_bytes(dtype));
    const Npy npy = parse(file_of(header_of(name, "(3,)"), std::string(3 * size, '\1')));
    EXPECT_EQ(npy.tensor().dtype, dtype) << name;
    EXPECT_EQ(npy.tensor().elements(), 3) << name;
  }
}

TEST(NpyTest, ReadsAsPythonMayWriteIt) {
  const std::string data(8, '\0');
  EXPECT_EQ(parse(file_of("{'shape':(1,2),\"descr\":'<i4','fortran_order':False}", data)).tensor().rank, 2);
  EXPECT_EQ(parse(file_of(header_of("<i8", "()"), data)).tensor().rank, 0);
  EXPECT_EQ(parse(file_of(header_of("<i4", "(2, 0, 9223372036854775807, 9223372036854775807)"), "")).tensor().rank, 4);
}

TEST(NpyTest, KeepsItsDataWhenCopied) {
  Npy copy = [] { return parse(file_of(header_of("<i8", "(1,)"), bytes_of<std::int64_t>({42}))); }();
  const Npy another = copy;
  copy = parse(file_of(header_of("|u1", "(1,)"), "x"));
  EXPECT_EQ(*another.tensor().as<std::int64_t>(), 42);
}

TEST(NpyTest, RefusesWhatItIsNot) {
  EXPECT_REFUSED("", "magic");
  EXPECT_REFUSED("\x93NUMPZ1234567890", "magic");
  EXPECT_REFUSED(file_of(header_of("<f4", "(0,)"), "", 3), "3.0");
  EXPECT_REFUSED(file_of(header_of(">f4", "(1,)"), "1234"), "big-endian");
  EXPECT_REFUSED(file_of(header_of("<f8", "(1,)"), "12345678"), "<f8");
  EXPECT_REFUSED(file_of(header_of("<c8", "(1,)"), "12345678"), "<c8");
  EXPECT_REFUSED(file_of(header_of("|O", "(1,)"), "12345678"), "|O");
  EXPECT_REFUSED(file_of("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", "1234"), "records");
  EXPECT_REFUSED(file_of(header_of("<f4", "(2, 2)", "True"), std::string(16, 'x')), "Fortran");
  EXPECT_REFUSED(file_of(header_of("|b1", "(2,)"), "\1\2"), "element 1 is a boolean of 2");
}

TEST(NpyTest, RefusesSizesThatDisagree) {
  EXPECT_REFUSED(file_of(header_of("<f4", "(3,)"), "12345678901"), "12 bytes, but 11 follow");
  EXPECT_REFUSED(file_of(header_of("<f4", "(3,)"), "1234567890123"), "12 bytes, but 13 follow");
  EXPECT_REFUSED(file_of(header_of("<f4", "(4294967296, 4294967296)"), ""), "2^63");
  EXPECT_REFUSED(file_of(header_of("<i8", "(2305843009213693952,)"), ""), "2^63");
  EXPECT_REFUSED(file_of(header_of("<i8", "(9223372036854775808,)"), ""), "9223372036854775808");
  EXPECT_REFUSED(file_of(header_of("<i8", "(1,1,1,1,1,1)"), "12345678"), "5 axes");
}

TEST(NpyTest, RefusesHeadersThatAreNone) {
  for (const char* header :
       {"", "{", "{}", "{'descr'", "{'descr':", "{'descr': '<f4", "{'descr': 3}", "{'descr': '<f4' 'shape'",
        "{'descr': '<f4', 'fortran_order': False}", "{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1 1)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': [1]}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x",
        "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'more': 1}"})
    EXPECT_REFUSED(file_of(header, "1234"), "header") << header;
}

TEST(NpyTest, EveryCutOfAFileIsRefused) {
  for (const int version : {1, 2}) {
    const std::string whole = file_of(header_of("<f4", "(2, 1)"), "12345678", version);
    EXPECT_EQ(parse(whole).tensor().rank, 2);
    for (std::size_t size = 0; size < whole.size(); ++size) EXPECT_NE(refusal(whole.substr(0, size)), "it was read");
  }
}

TEST(NpyTest, ReadsFiles) {
  const auto folder = std::filesystem::temp_directory_path() / ("tessera_npy_test_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const std::string path = (folder / "a.npy").string();
  const auto write = [&](const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; };
  for (const int version : {1, 2}) {
    write(file_of(header_of("<i4", "(2,)"), bytes_of({7, -8}), version));
    const Npy npy = Npy::read(path);
    EXPECT_EQ(npy.tensor().as<std::int32_t>()[0], 7);
    EXPECT_EQ(npy.tensor().as<std::int32_t>()[1], -8);
  }
  write("short");
  EXPECT_THROW(Npy::read(path), Error);
  EXPECT_THROW(Npy::read((folder / "none.npy").string()), Error);
  EXPECT_THROW(Npy::read(folder.string()), Error);
  std::filesystem::remove_all(folder);
}

}  // namespace
