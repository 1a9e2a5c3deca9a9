// Kernels from memory, disk, packs or the compiler: what is damaged, missing, in use or forbidden, and many at once.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "cuda/fakes.hpp"

namespace tessera::cuda::tests {
namespace {

class CacheTest : public WithFakes {
 protected:
  // The kernel, as another process would get it; where it was before.
  gpu::Found again(const gpu::KernelText& text = some_text()) {
    restart();
    const gpu::Found found = engine().where(0, text);
    engine().kernel(0, text);
    EXPECT_EQ(engine().where(0, text), gpu::Found::memory);
    return found;
  }
  std::string cached_file() {
    std::string found;
    for (const auto& entry : fs::directory_iterator(settings.cache))
      if (entry.path().extension() == ".kernel") found = entry.path().string();
    return found;
  }
  // Runs `body` in a process of its own; it is to return whether all was well.
  template <class F>
  static pid_t fork_for(F body) {
    const pid_t child = fork();
    if (child != 0) return child;
    bool good = false;
    try {
      good = body();
    } catch (const std::exception&) {
    }
    _exit(good ? 0 : 1);
  }
  static int status_of(pid_t child) {
    int status = -1;
    waitpid(child, &status, 0);
    return status;
  }
};

TEST_F(CacheTest, FromTheCompilerThenFromDisk) {
  EXPECT_EQ(again(), gpu::Found::nowhere);
  EXPECT_EQ(compilations(), 1);
  EXPECT_EQ(again(), gpu::Found::disk);
  EXPECT_EQ(compilations(), 1);
  EXPECT_EQ(notes(), "");
  // Another text, another spec, other threads are another kernel.
  EXPECT_EQ(again(some_text("scale", "// more")), gpu::Found::nowhere);
  gpu::KernelText other = some_text();
  other.spec += " again";
  EXPECT_EQ(again(other), gpu::Found::nowhere);
  other = some_text();
  other.threads = 256;
  EXPECT_EQ(again(other), gpu::Found::nowhere);
  EXPECT_EQ(compilations(), 4);
}

TEST_F(CacheTest, ADigestOverAllButTheHeaderMakesEveryCutVisible) {
  again();
  const std::string path = cached_file(), whole = content(path);
  ASSERT_GT(whole.size(), 400u);
  int expected = 1;
  for (const std::size_t length :
       {0ul, 1ul, 7ul, 8ul, 15ul, 16ul, 47ul, 48ul, 49ul, 100ul, whole.size() / 2, whole.size() - 1}) {
    put(path, whole.substr(0, length));
    EXPECT_EQ(again(), gpu::Found::nowhere) << length;
    EXPECT_EQ(compilations(), ++expected) << length;
    EXPECT_TRUE(has(notes(), path) && has(notes(), "cut off; compiled again")) << length << ": " << notes();
    EXPECT_EQ(content(path), whole) << "and it is whole again";
  }
  put(path, whole + "x");
  EXPECT_EQ(again(), gpu::Found::nowhere);
  EXPECT_TRUE(has(notes(), "longer than it says")) << notes();
}

TEST_F(CacheTest, EveryFlippedBitIsSeen) {
  again();
  const std::string path = cached_file(), whole = content(path);
  int expected = 1;
  for (std::size_t at = 0; at < whole.size(); at += at < 64 ? 5 : whole.size() / 23) {
    std::string flipped = whole;
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << at % 8));
    put(path, flipped);
    EXPECT_EQ(again(), gpu::Found::nowhere) << at;
    EXPECT_EQ(compilations(), ++expected) << at;
    EXPECT_TRUE(has(notes(), path)) << at << ": " << notes();
  }
}

TEST_F(CacheTest, AFileThatIsWholeButOfAnotherKernel) {
  again();
  const std::string path = cached_file();
  again(some_text("other"));
  for (const auto& entry : fs::directory_iterator(settings.cache))
    if (entry.path().extension() == ".kernel" && entry.path() != path)
      fs::copy_file(entry.path(), path, fs::copy_options::overwrite_existing);
  EXPECT_EQ(again(), gpu::Found::nowhere);
  EXPECT_EQ(compilations(), 3);
}

TEST_F(CacheTest, WhatTheDriverRefusesIsCompiledAgain) {
  again();
  std::string why;
  std::optional<KernelImage> image = decode(content(cached_file()), why);
  ASSERT_TRUE(image) << why;
  image->cubin = "JUNK" + image->cubin;
  put(cached_file(), encode(*image));
  EXPECT_EQ(again(), gpu::Found::disk);
  EXPECT_EQ(compilations(), 2);
  EXPECT_TRUE(has(notes(), "from the cache was refused by the driver")) << notes();
  EXPECT_EQ(again(), gpu::Found::disk);
  EXPECT_EQ(compilations(), 2);
  EXPECT_EQ(notes(), "");
}

TEST_F(CacheTest, ANewCodeThatTheDriverRefuses) {
  state().fail["cuModuleLoadDataEx"] = cuda_unsupported_ptx;
  const Failure failure = failure_of([&] { engine().kernel(0, some_text()); });
  EXPECT_EQ(failure.code, Code::internal);
  for (const char* part : {"loading the kernel scale", "(222)", "made by NVRTC 13.0 for sm_90a", "CUDA 13.0"})
    EXPECT_TRUE(has(failure.text, part)) << failure.text;
}

TEST_F(CacheTest, AFolderThatCannotBeMade) {
  put(folder / "file", "");
  settings.cache = folder / "file/cache";
  EXPECT_EQ(again(), gpu::Found::nowhere);
  engine().kernel(0, some_text("other"));
  const std::vector<std::string> all = engine().notes();
  ASSERT_EQ(all.size(), 1u) << notes();
  EXPECT_TRUE(has(all[0], "kept in memory only") && has(all[0], "Not a directory") && has(all[0], "TESSERA_CACHE_DIR"))
      << all[0];
}

TEST_F(CacheTest, NoFolderAtAll) {
  settings.cache = "";
  settings.no_cache = "nothing names one";
  EXPECT_EQ(again(), gpu::Found::nowhere);
  EXPECT_TRUE(has(notes(), "kept in memory only: nothing names one")) << notes();
}

TEST_F(CacheTest, AFullDisk) {
  const pid_t child = fork_for([&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{100, 100};  // no file may be longer: writing fails as it does on a full disk
    setrlimit(RLIMIT_FSIZE, &limit);
    engine().kernel(0, some_text());
    return has(notes(), "cannot be written") && has(notes(), settings.cache);
  });
  EXPECT_EQ(status_of(child), 0);
  for (const auto& entry : fs::directory_iterator(settings.cache))
    EXPECT_EQ(entry.path().filename(), "lock") << "nothing half-written is left";
  EXPECT_EQ(again(), gpu::Found::nowhere);
}

TEST_F(CacheTest, SixteenProcessesCompileOnce) {
  setenv("FAKE_NVRTC_MS", "200", 1);
  std::vector<pid_t> children;
  for (int i = 0; i < 16; ++i)
    children.push_back(fork_for([&] {
      engine().kernel(0, some_text());
      return notes().empty();
    }));
  for (const pid_t child : children) EXPECT_EQ(status_of(child), 0);
  EXPECT_EQ(compilations(), 1);
}

TEST_F(CacheTest, ProcessesCompileDifferentKernelsAtOnce) {
  setenv("FAKE_NVRTC_MS", "300", 1);
  const auto begin = std::chrono::steady_clock::now();
  std::vector<pid_t> children;
  for (int i = 0; i < 6; ++i)
    children.push_back(fork_for([&] {
      engine().kernel(0, some_text("kernel" + std::to_string(i)));
      return true;
    }));
  for (const pid_t child : children) EXPECT_EQ(status_of(child), 0);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(1500));  // 1800 one after the other
  EXPECT_EQ(compilations(), 6);
}

TEST_F(CacheTest, KilledWhileCompiling) {
  setenv("FAKE_NVRTC_MS", "60000", 1);
  const pid_t child = fork_for([&] {
    engine().kernel(0, some_text());
    return true;
  });
  while (compilations() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  kill(child, SIGKILL);
  status_of(child);
  unsetenv("FAKE_NVRTC_MS");
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(again(), gpu::Found::nowhere);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
  EXPECT_EQ(notes(), "") << "the lock went with its holder";
  EXPECT_EQ(again(), gpu::Found::disk);
}

TEST_F(CacheTest, AHolderThatHangsIsNotWaitedForForEver) {
  setenv("FAKE_NVRTC_MS", "60000", 1);
  const pid_t child = fork_for([&] {
    engine().kernel(0, some_text());
    return true;
  });
  while (compilations() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  kill(child, SIGSTOP);
  unsetenv("FAKE_NVRTC_MS");
  settings.lock_patience = std::chrono::milliseconds(150);
  EXPECT_EQ(again(), gpu::Found::nowhere);
  EXPECT_TRUE(has(notes(), "has held the lock on scale")) << notes();
  EXPECT_EQ(again(), gpu::Found::disk);
  kill(child, SIGKILL);
  status_of(child);
}

TEST_F(CacheTest, ALockFileThatCannotBeOpened) {
  fs::create_directories(settings.cache + "/lock");  // a folder where the file should be
  EXPECT_EQ(again(), gpu::Found::nowhere);
  EXPECT_EQ(again(), gpu::Found::disk);
}

TEST_F(CacheTest, AnotherCompilerCompilesAnew) {
  settings.nvrtc = folder / "libnvrtc-fake-copy.so.13";
  fs::copy_file(FAKE_NVRTC, settings.nvrtc);
  again();
  EXPECT_EQ(again(), gpu::Found::disk);
  fs::last_write_time(settings.nvrtc,
                      fs::file_time_type::clock::now() + std::chrono::hours(1));  // another is installed
  EXPECT_EQ(again(), gpu::Found::nowhere);
  EXPECT_EQ(compilations(), 2);
}

TEST_F(CacheTest, WithoutACompilerWhatIsThereIsUsed) {
  again();
  settings.nvrtc = folder / "libnvrtc-none.so";
  EXPECT_EQ(again(), gpu::Found::disk);
  const Failure failure = failure_of([&] { engine().kernel(0, some_text("other")); });
  EXPECT_EQ(failure.code, Code::unsupported);
  for (const std::string& part : {std::string("the kernel other for sm_90a"), settings.cache,
                                  std::string("TESSERA_PACK"), settings.nvrtc, std::string("there is no such file")})
    EXPECT_TRUE(has(failure.text, part)) << part << " in " << failure.text;
}

TEST_F(CacheTest, ATextThatDoesNotCompile) {
  const gpu::KernelText text = some_text("broken", "#error of a test");
  const Failure failure = failure_of([&] { engine().kernel(0, text); });
  EXPECT_EQ(failure.code, Code::unsupported);
  for (const char* part : {"NVRTC 13.0", "does not compile broken for sm_90a", "error: #error of a test",
                           "broken of a test", "TESSERA_DUMP"})
    EXPECT_TRUE(has(failure.text, part)) << failure.text;
  EXPECT_EQ(failure_of([&] { engine().kernel(0, text); }).text, failure.text);
  EXPECT_EQ(compilations(), 1) << "and is not tried again";
}

TEST_F(CacheTest, ADeviceThatTheCompilerDoesNotKnow) {
  state().arch = 89;  // an earlier one of its generation serves
  again();
  EXPECT_TRUE(has(cached_file(), ".sm_86.")) << cached_file();
  EXPECT_EQ(again(), gpu::Found::disk);
  EXPECT_EQ(compilations(), 1);
  state().arch = 75;
  restart();
  const Failure failure = failure_of([&] { engine().kernel(0, some_text()); });
  EXPECT_TRUE(has(failure.text, "compiles for sm_80, sm_86, sm_90, sm_100 and the GPU is sm_75")) << failure.text;
}

TEST_F(CacheTest, ListsAndClears) {
  again();
  again(some_text("other"));
  put(settings.cache + "/0123.sm_90a.4567.kernel", "nonsense");
  put(settings.cache + "/0123.sm_90a.4567.kernel.1-1.tmp", "half");
  put(settings.cache + "/mine.txt", "not ours");
  const std::vector<DiskCache::File> files = engine().store().disk().files();
  ASSERT_EQ(files.size(), 4u);
  int whole = 0;
  for (const DiskCache::File& file : files) {
    whole += file.image.has_value();
    EXPECT_NE(file.image.has_value(), !file.damage.empty()) << file.path;
    EXPECT_GT(file.bytes, 0u);
  }
  EXPECT_EQ(whole, 2);
  EXPECT_EQ(engine().store().disk().remove(files), 4u);
  EXPECT_TRUE(engine().store().disk().files().empty());
  EXPECT_TRUE(fs::exists(settings.cache + "/mine.txt"));
  EXPECT_EQ(again(), gpu::Found::nowhere);
}

TEST_F(CacheTest, Dump) {
  settings.dump = folder / "dump/deeper";
  again();
  std::string names;
  for (const auto& entry : fs::directory_iterator(settings.dump)) names += entry.path().filename().string() + " ";
  for (const char* part : {".cu ", ".sm_90a.cubin ", ".sm_90a.txt "}) EXPECT_TRUE(has(names, part)) << names;
  for (const auto& entry : fs::directory_iterator(settings.dump)) {
    const std::string text = content(entry.path().string());
    if (entry.path().extension() == ".cu") {
      EXPECT_EQ(text, some_text().source);
    } else if (entry.path().extension() == ".txt") {
      for (const char* part : {"scale of a test", "42 registers, 8 bytes of stack, 4 bytes spilled", "ptxas info"})
        EXPECT_TRUE(has(text, part)) << text;
    }
  }
  settings.dump = folder / "compilations/below_a_file";
  again(some_text("other"));
  EXPECT_TRUE(has(notes(), "TESSERA_DUMP")) << notes();
}

// Packs.

class PackTest : public CacheTest {
 protected:
  void SetUp() override {
    WithFakes::SetUp();
    pack = folder / "kernels.tpack";
  }
  std::vector<KernelImage> compiled(const std::vector<std::string>& archs, const std::string& name = "scale") {
    Notes none;
    Compiler compiler(nvrtc_places("", FAKE_NVRTC), 0, none);
    std::vector<KernelImage> all;
    for (const std::string& arch : archs) all.push_back(compiler.compile(some_text(name), arch));
    return all;
  }
  // From here on there is no compiler, and an empty cache.
  void carry() {
    settings.nvrtc = folder / "libnvrtc-none.so";
    settings.cache = folder / "elsewhere";
    settings.packs = {pack};
    log += "-none";
    setenv("FAKE_NVRTC_LOG", log.c_str(), 1);
  }
  std::string pack;
};

TEST_F(PackTest, CarriesKernelsToWhereThereIsNoCompiler) {
  std::vector<KernelImage> kernels = compiled({"sm_80", "sm_90a", "sm_90"});
  kernels.push_back(compiled({"sm_90a"}, "other")[0]);
  write_pack(pack, kernels);
  carry();
  EXPECT_EQ(again(), gpu::Found::pack);
  EXPECT_EQ(again(some_text("other")), gpu::Found::pack);
  EXPECT_EQ(compilations(), 0);
  EXPECT_EQ(notes(), "");
  const Failure failure = failure_of([&] { engine().kernel(0, some_text("third")); });
  EXPECT_TRUE(has(failure.text, "not in the packs, and")) << failure.text;
  const Failure old = failure_of([&] { engine().kernel(0, some_text("scale", "// as a later version has it")); });
  EXPECT_TRUE(has(old.text, pack + " has it as another version of this library makes it")) << old.text;
}

TEST_F(PackTest, AnyCompilerMayHaveMadeIt) {
  std::vector<KernelImage> kernels = compiled({"sm_90a"});
  kernels[0].compiler = "NVRTC 12.4", kernels[0].compiler_id = "elsewhere";
  write_pack(pack, kernels);
  settings.packs = {folder / "none.tpack", pack};
  EXPECT_EQ(again(), gpu::Found::pack);
  EXPECT_EQ(compilations(), 1) << "of the pack";
  EXPECT_TRUE(has(notes(), "none.tpack is refused: it cannot be opened")) << notes();
}

TEST_F(PackTest, TheBestCodeForTheDevice) {
  write_pack(pack, compiled({"sm_80", "sm_86", "sm_90", "sm_90a"}));
  const Pack p(pack);
  const Digest key = text_key(some_text());
  const auto arch = [&](int device) {
    const Pack::Entry* const entry = p.find(key, device);
    return entry ? entry->arch : std::string("none");
  };
  EXPECT_EQ(arch(80), "sm_80");
  EXPECT_EQ(arch(86), "sm_86");
  EXPECT_EQ(arch(89), "sm_86");
  EXPECT_EQ(arch(90), "sm_90a");
  EXPECT_EQ(arch(100), "none");
  EXPECT_EQ(arch(75), "none");
}

TEST_F(PackTest, OfTheSameKernelTheLastCounts) {
  std::vector<KernelImage> kernels = compiled({"sm_90a", "sm_90a"});
  kernels[1].log = "the later one";
  write_pack(pack, kernels);
  const Pack p(pack);
  ASSERT_EQ(p.entries().size(), 1u);
  EXPECT_EQ(p.read(p.entries()[0]).log, "the later one");
}

TEST_F(PackTest, DamagedOnesAreRefusedWithAWord) {
  write_pack(pack, compiled({"sm_90a"}));
  const std::string whole = content(pack);
  carry();
  for (std::size_t length = 0; length < whole.size(); length += length < 70 ? 1 : 97) {
    put(pack, whole.substr(0, length));
    EXPECT_EQ(failure_of([&] { Pack p(pack); }).code, Code::io) << length;
  }
  int refused = 0, tried = 0;
  for (std::size_t at = 0; at < whole.size(); at += at < 100 ? 1 : 13, ++tried) {
    std::string flipped = whole;
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << at % 8));
    put(pack, flipped);
    const Failure failure = failure_of([&] {
      const Pack p(pack);
      for (const Pack::Entry& entry : p.entries()) p.read(entry);
    });
    refused += failure.code == Code::io && has(failure.text, pack) && has(failure.text, "refused");
  }
  EXPECT_GT(tried, 100);
  EXPECT_EQ(refused, tried);
  put(pack, whole.substr(0, whole.size() - 5) + "12345");  // in the kernel: seen when it is wanted
  restart();
  const Failure failure = failure_of([&] { engine().kernel(0, some_text()); });
  EXPECT_EQ(failure.code, Code::unsupported);
  EXPECT_TRUE(has(notes(), "the kernel scale for sm_90a in the pack")) << notes();
}

TEST_F(PackTest, ADamagedPackBesideACompiler) {
  write_pack(pack, compiled({"sm_90a"}));
  put(pack, content(pack).substr(0, 100));
  settings.packs = {pack};
  EXPECT_EQ(again(), gpu::Found::nowhere);
  EXPECT_EQ(compilations(), 2);
  EXPECT_TRUE(has(notes(), "copied in part?")) << notes();
}

TEST_F(PackTest, AnUnwritablePlace) {
  const Failure failure = failure_of([&] { write_pack(folder / "no/such/folder.tpack", compiled({"sm_90a"})); });
  EXPECT_EQ(failure.code, Code::io);
  EXPECT_TRUE(has(failure.text, "No such file or directory")) << failure.text;
}

}  // namespace
}  // namespace tessera::cuda::tests
