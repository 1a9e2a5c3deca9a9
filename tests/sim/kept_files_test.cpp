// The folder of compiled kernels: what goes, and what stays.
#include "sim/kept_files.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "sim/engine.hpp"
#include "sim/row_dots.hpp"

namespace tessera::sim {
namespace {

namespace fs = std::filesystem;
using std::chrono::hours;

class KeptFilesTest : public testing::Test {
 protected:
  KeptFilesTest() {
    std::string pattern = (fs::temp_directory_path() / "tessera-kept-XXXXXX").string();
    folder = mkdtemp(pattern.data());
  }
  ~KeptFilesTest() override { fs::remove_all(folder); }
  void put(const std::string& name, hours age, std::size_t bytes = 10) {
    std::ofstream(folder / name) << std::string(bytes, 'x');
    fs::last_write_time(folder / name, fs::file_time_type::clock::now() - age);
  }
  std::set<std::string> names() const {
    std::set<std::string> all;
    for (const auto& entry : fs::directory_iterator(folder)) all.insert(entry.path().filename().string());
    return all;
  }
  fs::path folder;
};

TEST_F(KeptFilesTest, WhatWasNotUsedForLongGoes) {
  put("old-1.so", hours(400)), put("old-1.cpp", hours(400));
  put("half-2.so", hours(2)), put("half-2.cpp", hours(400));  // used lately: its text stays, too
  put("left-3.77.0.tmp", hours(400)), put("new-4.so", hours(0));
  EXPECT_EQ(prune(folder), 3);
  EXPECT_EQ(names(), (std::set<std::string>{"half-2.so", "half-2.cpp", "new-4.so"}));
}

TEST_F(KeptFilesTest, BeyondASizeTheOldestGo) {
  put("a.so", hours(5), 100), put("b.so", hours(4), 100), put("c.so", hours(3), 100), put("d.so", hours(0), 1000);
  EXPECT_EQ(prune(folder, {.bytes = 1250}), 1);
  EXPECT_EQ(names(), (std::set<std::string>{"b.so", "c.so", "d.so"}));
  EXPECT_EQ(prune(folder, {.bytes = 10}), 2);  // what is in use is spared
  EXPECT_EQ(names(), (std::set<std::string>{"d.so"}));
}

TEST_F(KeptFilesTest, NoFolderNothing) { EXPECT_EQ(prune(folder / "none"), 0); }

// An engine removes what nobody has used, once; a kernel that it takes from the folder has been used.
TEST_F(KeptFilesTest, AnEnginePrunesItsFolder) {
  put("other.so", hours(400));
  { Engine({.folder = folder}).kernel(0, row_dots_text()); }
  EXPECT_FALSE(names().count("other.so"));
  std::string object;
  for (const std::string& name : names())
    if (name.ends_with(".so")) object = name;
  ASSERT_FALSE(object.empty());
  put("other.so", hours(400));
  for (const std::string& name : names())
    fs::last_write_time(folder / name, fs::file_time_type::clock::now() - hours(400));
  Engine({.folder = folder});
  EXPECT_TRUE(names().count("other.so"));
  note_use(folder / object);
  prune(folder);
  EXPECT_FALSE(names().count("other.so"));
  EXPECT_TRUE(names().count(object));
}

}  // namespace
}  // namespace tessera::sim
