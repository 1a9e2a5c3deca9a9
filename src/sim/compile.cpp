// g++ as a child process, a folder of shared objects, and dlopen.
#include "sim/compile.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <thread>

#include "sim/device.hpp"
#include "sim/kept_files.hpp"
#include "tessera/error.hpp"

extern char** environ;

namespace tessera::sim {
namespace {

namespace fs = std::filesystem;

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

// Runs a program and waits; its output goes to the file `log`. The exit status, or -1.
int run(const std::vector<std::string>& words, const std::string& log) {
  std::vector<char*> args;
  for (const std::string& w : words) args.push_back(const_cast<char*>(w.c_str()));
  args.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t pid = 0;
  const int failed = posix_spawnp(&pid, args[0], &actions, nullptr, args.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed) return -1;
  int status = 0;
  while (waitpid(pid, &status, 0) < 0)
    if (errno != EINTR) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// What a kernel's arithmetic needs to be fast, and what nvcc assumes too: products contracted with sums, pointers to
// words reinterpreted. -g1: lines for the reports, without the places of variables, which take as long as the
// optimiser; a call in the place of a jump: the line that called. -O1: most kernels run for less time than -O2 takes. A
// checked kernel calls on_access() before each access (builtins.hpp; -nostdlib keeps libtsan out), and traps where an
// index leaves its array.
std::vector<std::string> flags(bool checked) {
  const std::string all =
      "-std=c++20 -x c++ -O1 -shared -fPIC -fvisibility=hidden -g1 -w -mavx2 -mfma -mf16c -ffp-contract=fast "
      "-fno-strict-aliasing -fno-math-errno -fno-optimize-sibling-calls -fno-exceptions -fno-rtti "
      "-ftls-model=initial-exec";
  const std::string kind =
      checked ? " -fsanitize=thread --param tsan-instrument-func-entry-exit=0 -fsanitize=bounds-strict "
                "-fsanitize-undefined-trap-on-error -nostdlib"
              : "";
  std::istringstream in(all + kind);
  return {std::istream_iterator<std::string>(in), {}};
}

// Two independent sums of 64 bits (FNV-1a with different primes): names of files, not a defence against anyone.
struct Sum {
  std::uint64_t a = 0xcbf29ce484222325u, b = 0x84222325cbf29ce4u;
  void add(std::string_view text) {
    for (const char c : text) {
      a = (a ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
      b = (b ^ static_cast<unsigned char>(c)) * 0x9e3779b97f4a7c15u;
      b ^= b >> 29;
    }
    a = (a ^ 0xff) * 0x100000001b3u;  // where one text ends and the next begins
    b = (b ^ 0xff) * 0x9e3779b97f4a7c15u;
  }
  std::string hex() const {
    char s[40];
    std::snprintf(s, sizeof s, "%016llx%016llx", static_cast<unsigned long long>(a),
                  static_cast<unsigned long long>(b));
    return s;
  }
};

std::string compiler_version(const std::string& compiler, const std::string& folder) {
  static std::mutex mutex;
  static std::map<std::string, std::string> known;
  const std::lock_guard lock(mutex);
  std::string& version = known[compiler];
  if (!version.empty()) return version;
  const std::string log = folder + "/version." + std::to_string(getpid());
  if (run({compiler, "-v"}, log) != 0) {
    fs::remove(log);
    throw Error(tessera::Code::unsupported, "the emulated GPU compiles kernels with '" + compiler +
                                                "', which cannot be run: install it, or name another C++ compiler");
  }
  version = read_file(log);
  fs::remove(log);
  return version;
}

void make_folder(const CompileOptions& options) {
  std::error_code failed;
  fs::create_directories(options.folder, failed);
  if (failed || options.folder.empty())
    throw Error(tessera::Code::io,
                "the folder '" + options.folder + "' for compiled kernels cannot be made: " + failed.message());
}

std::string path_of(const CompileOptions& options, const std::string& name, const std::string& complete) {
  make_folder(options);
  Sum sum;
  sum.add(compiler_version(options.compiler, options.folder));
  for (const std::string& flag : flags(options.checked)) sum.add(flag);
  sum.add(complete);
  return options.folder + "/" + name + "-" + sum.hex();
}

void compile_to(const CompileOptions& options, const std::string& path, const std::string& complete) {
  static std::atomic<int> count{0};
  // The text stays beside the object, for the lines in reports and for debuggers.
  const std::string mark = "." + std::to_string(getpid()) + "." + std::to_string(count++);
  const std::string source = path + mark + ".cpp", object = path + mark + ".tmp", log = path + mark + ".log";
  std::ofstream(source, std::ios::binary) << complete;
  std::vector<std::string> words = {options.compiler};
  for (const std::string& flag : flags(options.checked)) words.push_back(flag);
  words.insert(words.end(), {source, "-o", object, "-lm"});
  const int status = run(words, log);
  const std::string said = read_file(log);
  fs::remove(log);
  if (status != 0) {
    fs::remove(object);
    throw Error(tessera::Code::unsupported,
                "'" + options.compiler + "' refused a kernel (" + source + "):\n" + said.substr(0, 6000));
  }
  fs::rename(source, path + ".cpp");
  fs::rename(object, path + ".so");
}

struct Extent {
  const char *base, *begin = nullptr, *end = nullptr;
};
Extent extent_of(const void* symbol) {
  Dl_info info{};
  dladdr(symbol, &info);
  Extent extent{static_cast<const char*>(info.dli_fbase)};
  dl_iterate_phdr(
      [](dl_phdr_info* object, std::size_t, void* out) {
        auto* e = static_cast<Extent*>(out);
        if (reinterpret_cast<const char*>(object->dlpi_addr) != e->base) return 0;
        std::size_t last = 0;
        for (int i = 0; i < object->dlpi_phnum; ++i)
          if (object->dlpi_phdr[i].p_type == PT_LOAD)
            last = std::max<std::size_t>(last, object->dlpi_phdr[i].p_vaddr + object->dlpi_phdr[i].p_memsz);
        e->begin = e->base;
        e->end = e->base + last;
        return 1;
      },
      &extent);
  return extent;
}

LoadedCode load(const std::string& path, bool checked, const std::string& complete) {
  void* library = dlopen((path + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library)
    throw Error(tessera::Code::internal,
                std::string("a compiled kernel cannot be loaded (does the program export the machine's "
                            "functions, as linking with tessera_sim makes it?): ") +
                    dlerror());
  LoadedCode code;
  code.run = reinterpret_cast<void (*)(const void*)>(dlsym(library, "tessera_sim_entry"));
  const auto* bytes = static_cast<const u64*>(dlsym(library, "tessera_sim_params_bytes"));
  if (!code.run || !bytes) throw Error(tessera::Code::internal, "a compiled kernel has no entry: " + path + ".so");
  code.params_bytes = *bytes;
  code.checked = checked;
  code.asynchronous = complete.find("INSN(::sim::mbarrier_init(") != std::string::npos ||
                      complete.find("INSN(::sim::wgmma_commit(") != std::string::npos;
  int threads = 0, blocks = 0;
  const std::size_t bounds = complete.rfind(" __launch_bounds__(");
  if (bounds != std::string::npos &&
      std::sscanf(complete.c_str() + bounds, " __launch_bounds__(%d , %d", &threads, &blocks) == 2)
    code.blocks_per_sm = std::max(1, blocks);
  const Extent extent = extent_of(reinterpret_cast<const void*>(code.run));
  code.text_begin = extent.begin;
  code.text_end = extent.end;
  code.file = path + ".so";
  return code;
}

struct Planted {
  std::function<std::string(const std::string&)> edit;
  std::string folder;
};
Planted& planted() {
  static Planted it;
  return it;
}

// One entry for each text; whoever comes first does the work, others wait for it.
struct Table {
  std::mutex mutex;
  std::map<std::string, std::shared_future<std::shared_ptr<const LoadedCode>>> of;  // by path
};
Table& table() {
  static Table it;
  return it;
}

std::shared_ptr<const LoadedCode> make(const CompileOptions& options, const std::string& path,
                                       const std::string& complete) {
  if (fs::exists(path + ".so")) try {
      auto loaded = std::make_shared<LoadedCode>(load(path, options.checked, complete));
      note_use(path + ".so");
      return loaded;
    } catch (const Error&) {  // a damaged file
      fs::remove(path + ".so");
    }
  compile_to(options, path, complete);
  return std::make_shared<LoadedCode>(load(path, options.checked, complete));
}

}  // namespace

std::string complete_text(bool checked, const std::string& name, const std::string& text) {
  std::string all = checked ? "#define TESSERA_SIM_CHECKED 1\n" : "";
  std::size_t lines = checked ? 1 : 0;
  // What instructions mean goes by the name of a file of its own: reports name the line that uses them. The other lines
  // are those of the file that is kept, unless the text itself says better.
  const auto add = [&](std::string_view from, bool renames) {
    std::istringstream in{std::string(from)};
    std::string line;
    const auto say = [&](const std::string& word) {
      all += word + "\n";
      ++lines;
    };
    while (std::getline(in, line)) {
      if (renames && line == "namespace ptx {") say("#line 1 \"ptx\"");
      say(line.starts_with("#include \"") || line.starts_with("#pragma once") ? "" : line);
      if (renames && line == "}  // namespace ptx") say("#line " + std::to_string(lines + 2) + " \"" + name + ".cpp\"");
    }
  };
  add("#line 1 \"builtins\"", false);
  add(device_text(), false);
  add(builtins_text(), false);
  add("#line " + std::to_string(lines + 2) + " \"" + name + ".cpp\"", false);
  add(text, text.find("#line ") == std::string::npos);
  const std::string kernel = "decltype(::sim::kernel_of(" + name + "))";
  return all + "extern \"C\" TESSERA_SIM_API void tessera_sim_entry(const void* params) {\n  " + kernel + "::call(" +
         name + ", params);\n}\n" +
         "extern \"C\" TESSERA_SIM_API const ::sim::u64 tessera_sim_params_bytes = " + kernel + "::bytes;\n";
}

void plant(std::function<std::string(const std::string&)> edit, const std::string& folder) {
  planted().edit = std::move(edit);
  planted().folder = folder;
}

const LoadedCode& compiled(const CompileOptions& given, const std::string& name, const std::string& text) {
  CompileOptions options = given;
  std::string source = text;
  if (planted().edit) {
    options.folder = planted().folder;
    source = planted().edit(text);
  }
  const std::string complete = complete_text(options.checked, name, source), path = path_of(options, name, complete);
  std::promise<std::shared_ptr<const LoadedCode>> mine;
  std::shared_future<std::shared_ptr<const LoadedCode>> result;
  bool first = false;
  {
    Table& all = table();
    const std::lock_guard lock(all.mutex);
    const auto found = all.of.find(path);
    if (found != all.of.end()) {
      result = found->second;
    } else {
      first = true;
      result = mine.get_future().share();
      all.of.emplace(path, result);
    }
  }
  if (first) try {
      mine.set_value(make(options, path, complete));
    } catch (...) {
      mine.set_exception(std::current_exception());
    }
  return *result.get();
}

Kept where_kept(const CompileOptions& options, const std::string& name, const std::string& text) {
  const std::string path = path_of(options, name, complete_text(options.checked, name, text));
  {
    Table& all = table();
    const std::lock_guard lock(all.mutex);
    const auto found = all.of.find(path);
    if (found != all.of.end() && found->second.wait_for(std::chrono::seconds(0)) == std::future_status::ready)
      return Kept::memory;
  }
  return fs::exists(path + ".so") ? Kept::disk : Kept::nowhere;
}

void compile_ahead(const CompileOptions& options, const std::vector<NamedText>& texts, int jobs) {
  const std::size_t wanted = jobs > 0 ? std::size_t(jobs) : std::max(1u, std::thread::hardware_concurrency());
  std::atomic<std::size_t> next{0};
  std::exception_ptr failure;
  std::mutex mutex;
  const auto work = [&] {
    for (std::size_t i = next++; i < texts.size(); i = next++) try {
        compiled(options, texts[i].name, texts[i].text);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
      }
  };
  std::vector<std::thread> crew;
  for (std::size_t i = 1; i < std::min(wanted, texts.size()); ++i) crew.emplace_back(work);
  work();
  for (std::thread& t : crew) t.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace tessera::sim
