// The conformance suite on a CUDA device, as one program that needs neither a build tree nor a network where it runs:
// it is built elsewhere and carried. Kernels may be carried, too: --pack makes a pack of all that the same flags would
// need, where there is a compiler and no GPU.
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "backend.hpp"
#include "conformance/named.hpp"
#include "conformance/sweep.hpp"
#include "cuda/compiler.hpp"
#include "cuda/context.hpp"
#include "cuda/engine.hpp"
#include "cuda/pack.hpp"
#include "gpu/gpu_backend.hpp"
#include "gpu/gpu_streams.hpp"
#include "gpu/testing/fake_engine.hpp"

namespace {

using namespace tessera;
using namespace tessera::conformance;

constexpr const char* usage =
    "tessera_gpu_conformance [flags]: the conformance suite on a GPU; without one it says so and is done\n"
    "  --backend NAME     cuda:sm_80 (which is the default), or cuda:sm_90, which passes over what it leaves to the "
    "other\n"
    "  --seeds A:B        suites A to B (1:1)\n"
    "  --kernels N        distinct kernels of a suite and a type (80)\n"
    "  --cases N          generated cases of a suite and a type (500)\n"
    "  --dtype A,B        bf16, f16 (both)\n"
    "  --streams          graph replay with changed lengths, and two streams at once; nothing else\n"
    "  --named            the named cases, once, beside the first suite\n"
    "  --exact            each call's memory is exactly as large as it needs and allocated for it: for "
    "compute-sanitizer\n"
    "  --metadata WHERE   prefix sums, lengths, ids: host, device, either (either)\n"
    "  --threads N        that compile and judge (all cores)\n"
    "  --case LINE        one case alone\n"
    "  --state FILE       suites that passed are noted there, and passed over the next time\n"
    "  --list-specs       the kernels that would be needed, one a line, planned for an H200; no GPU is needed\n"
    "  --pack FILE        compile them into a pack for --arch (sm_90a); no GPU is needed\n";

struct Flags {
  std::uint64_t first_seed = 1, last_seed = 1;
  std::int64_t kernels = 80, cases = 500;
  std::vector<DType> dtypes{bf16, f16};
  bool named = false, streams = false, exact = false, list_specs = false;
  Metadata metadata = Metadata::either;
  int threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  std::string backend = "cuda:sm_80", case_line, state, pack, arch = "sm_90a";
  bool is_sm90() const { return backend == "cuda:sm_90"; }
};

[[noreturn]] void misused(const std::string& text) {
  std::fprintf(stderr, "%s\n%s", text.c_str(), usage);
  std::exit(2);
}

template <class Integer>
Integer number(const std::string& flag, std::string_view text) {
  Integer value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 1)
    misused(flag + " takes a number of 1 or more, not '" + std::string(text) + "'");
  return value;
}

Flags parse(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const auto value = [&] {
      if (i + 1 == argc) misused(flag + " takes a value");
      return std::string(argv[++i]);
    };
    if (flag == "--named") flags.named = true;
    else if (flag == "--streams") flags.streams = true;
    else if (flag == "--exact") flags.exact = true;
    else if (flag == "--list-specs") flags.list_specs = true;
    else if (flag == "--kernels") flags.kernels = number<std::int64_t>(flag, value());
    else if (flag == "--cases") flags.cases = number<std::int64_t>(flag, value());
    else if (flag == "--threads") flags.threads = number<int>(flag, value());
    else if (flag == "--backend") flags.backend = value();
    else if (flag == "--case") flags.case_line = value();
    else if (flag == "--state") flags.state = value();
    else if (flag == "--pack") flags.pack = value();
    else if (flag == "--arch") flags.arch = value();
    else if (flag == "--seeds") {
      const std::string text = value();
      const std::size_t colon = text.find(':');
      flags.first_seed = number<std::uint64_t>(flag, std::string_view(text).substr(0, colon));
      flags.last_seed = colon == std::string::npos
                            ? flags.first_seed
                            : number<std::uint64_t>(flag, std::string_view(text).substr(colon + 1));
    } else if (flag == "--dtype") {
      const std::string text = value();
      flags.dtypes.clear();
      for (std::size_t at = 0; at != std::string::npos;) {
        const std::size_t comma = text.find(',', at);
        flags.dtypes.push_back(parse_dtype(std::string_view(text).substr(at, comma - at)));
        at = comma == std::string::npos ? comma : comma + 1;
      }
    } else if (flag == "--metadata") {
      const std::string text = value();
      if (text == "host") flags.metadata = Metadata::host;
      else if (text == "device") flags.metadata = Metadata::device;
      else if (text == "either") flags.metadata = Metadata::either;
      else misused("--metadata takes host, device or either, not '" + text + "'");
    } else misused("there is no flag '" + flag + "'");
  }
  return flags;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

SweepOptions options_of(const Flags& flags, std::uint64_t seed) {
  return {.seed = seed,
          .dtypes = flags.dtypes,
          .kernels = flags.kernels,
          .cases = flags.cases,
          .skip_refused = flags.is_sm90()};
}

Stream make_stream() {
  constexpr unsigned non_blocking = 1;
  const cuda::Current current(cuda::engine().driver(), 0);
  cuda::CUstream stream = nullptr;
  if (cuda::engine().driver().api.stream_create(&stream, non_blocking) != 0)
    throw std::runtime_error("cuStreamCreate failed");
  return {stream};
}
Subject subject_of(const Target& target, bool exact) {
  return device_subject(
      target.backend, target.device, target.metadata,
      copied_memory(cuda::engine(), target.device.index, exact ? nullptr : std::function(make_stream)));
}

// The types in which the named cases run: once for each, those that fix none in the first.
template <class Visit>
void for_named(const Flags& flags, Visit visit) {
  for (std::size_t d = 0; d < flags.dtypes.size(); ++d)
    for (const NamedCase& c : named_cases())
      if (c.every_dtype || d == 0) visit(c, flags.dtypes[d]);
}

// All kernels of the named cases: computed by the CPU, planned for the target.
Plans named_plans(const Flags& flags, const Target& target) {
  Subject by = subject("cpu");
  by.max_dim = 256;
  Collector collector(target, by);
  const Subject collecting = collector.subject();
  for_named(flags, [&](const NamedCase& c, DType dtype) { c.run(collecting, dtype); });
  return collector.plans();
}

// ------------------------------------------------------------------------------------------------ without a GPU
Plans all_plans(const Flags& flags) {
  static const tests::FakeEngine paper;  // an H200 that plans and does not compute
  static const gpu::GpuBackend backend("paper", paper, flags.is_sm90() ? 90 : 80);
  append_backend(backend);
  const Target target{backend.full_name(), {DeviceType::cuda, 0}, flags.metadata};
  const Subject s = device_subject(target.backend, target.device, target.metadata, copied_memory(paper, 0));
  Plans all;
  for (std::uint64_t seed = flags.first_seed; seed <= flags.last_seed; ++seed) {
    SweepOptions options = options_of(flags, seed);
    options.cases = 0;
    all.merge(choose_sweep(target, s, options, flags.threads).kernels);
  }
  if (flags.named) all.merge(named_plans(flags, target));
  return all;
}

int list_specs(const Flags& flags) {
  const Plans plans = all_plans(flags);
  for (const auto& [spec, plan] : plans) std::cout << spec << '\n';
  std::cerr << plans.size() << " kernels\n";
  return 0;
}

int make_pack(const Flags& flags) {
  std::vector<gpu::KernelText> texts;
  std::set<std::string> sources;
  for (const auto& [spec, plan] : all_plans(flags))
    for (gpu::KernelText& text : gpu::kernel_texts(plan))
      if (sources.insert(text.source).second) texts.push_back(std::move(text));
  const auto start = std::chrono::steady_clock::now();
  std::vector<cuda::KernelImage> images(texts.size());
  cuda::Compiler& compiler = cuda::engine().store().compiler();
  in_parallel(std::ssize(texts), flags.threads, [&](std::int64_t i) {
    images[static_cast<std::size_t>(i)] = compiler.compile(texts[static_cast<std::size_t>(i)], flags.arch);
  });
  cuda::write_pack(flags.pack, images);
  std::size_t spilled = 0;
  for (const cuda::KernelImage& image : images) spilled += image.spill_bytes > 0;
  std::cerr << images.size() << " kernels for " << flags.arch << " in " << flags.pack << ", compiled in "
            << seconds_since(start) << " s; " << spilled << " of them spill registers\n";
  return 0;
}

// ------------------------------------------------------------------------------------------------ on a GPU
struct Totals {
  std::int64_t cases = 0, failures = 0;
  std::set<std::string> kernels;
};

void compile_ahead(const Plans& plans, const Target& target, int threads) {
  std::vector<gpu::KernelText> texts;
  for (const auto& [spec, plan] : plans)
    for (gpu::KernelText& text : gpu::kernel_texts(plan)) texts.push_back(std::move(text));
  const auto start = std::chrono::steady_clock::now();
  in_parallel(std::ssize(texts), threads, [&](std::int64_t i) {
    try {
      cuda::engine().kernel(target.device.index, texts[static_cast<std::size_t>(i)]);
    } catch (const Error&) {
      // The case that needs it says so.
    }
  });
  std::cout << "  " << texts.size() << " texts compiled or loaded in " << seconds_since(start) << " s" << std::endl;
}

void add(Totals& totals, const Report& report, const Plans& kernels) {
  totals.cases += report.cases, totals.failures += std::ssize(report.failures);
  for (const auto& [spec, plan] : kernels) totals.kernels.insert(spec);
  for (const Failure& failure : report.failures) std::cout << "FAILED " << failure << std::endl;
  for (const std::string& skipped : report.skipped) std::cout << "  not given: " << skipped << '\n';
}

// A part with all that decides what it looks at.
std::string in_full(const Flags& flags, const std::string& part) {
  std::string text = flags.backend + ", metadata " + std::to_string(static_cast<int>(flags.metadata));
  for (const DType dtype : flags.dtypes) text += ", " + std::string(name(dtype));
  return text + (flags.exact ? ", exact: " : ": ") + part;
}
bool is_done(const Flags& flags, const std::string& part) {
  std::ifstream file(flags.state);
  for (std::string line; std::getline(file, line);)
    if (line == in_full(flags, part)) return true;
  return false;
}
void note_done(const Flags& flags, const std::string& part) {
  if (!flags.state.empty()) std::ofstream(flags.state, std::ios::app) << in_full(flags, part) << '\n';
}

void run_suite(const Flags& flags, const Target& target, std::uint64_t seed, Totals& totals) {
  const std::string part =
      "suite " + std::to_string(seed) + " of " + std::to_string(flags.kernels) + " x " + std::to_string(flags.cases);
  if (is_done(flags, part)) {
    std::cout << part << ": done before" << std::endl;
    return;
  }
  std::cout << part << std::endl;
  const Subject s = subject_of(target, flags.exact);
  const Sweep sweep = choose_sweep(target, s, options_of(flags, seed), flags.threads);
  compile_ahead(sweep.kernels, target, flags.threads);
  const Report report = run_sweep(s, sweep.cases, flags.threads);
  add(totals, report, sweep.kernels);
  std::cout << "  " << report.cases << " cases of " << sweep.kernels.size() << " kernels, " << report.failures.size()
            << " failed, " << report.seconds << " s";
  for (const Tally& t : report.tallies) std::cout << "; " << name(t.dtype) << " worst share " << t.worst;
  std::cout << std::endl;
  if (report.failures.empty()) note_done(flags, part);
}

// What is at work, said every ten seconds, and at once what has failed: a run that is cut off has told what it saw.
class Underway {
 public:
  explicit Underway(std::int64_t all) : all_(all), teller_([this](const std::stop_token& stop) { tell(stop); }) {}
  void begin(const std::string& what) {
    const std::lock_guard lock(mutex_);
    running_.insert(what);
  }
  void end(const std::string& what, const std::string& failure) {
    const std::lock_guard lock(mutex_);
    running_.erase(what), ++done_;
    if (!failure.empty()) std::cout << "  " << what << ": " << failure << std::endl;
  }

 private:
  void tell(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, stop, std::chrono::seconds(10), [&] { return stop.stop_requested(); })) {
      std::cout << "  " << done_ << " of " << all_ << "; at work:";
      for (const std::string& what : running_) std::cout << ' ' << what << ';';
      std::cout << std::endl;
    }
  }
  const std::int64_t all_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::multiset<std::string> running_;
  std::int64_t done_ = 0;
  std::jthread teller_;
};

// All of them at once: each thread compiles what its case needs.
void run_named(const Flags& flags, const Target& target, Totals& totals) {
  if (is_done(flags, "named")) return;
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::pair<const NamedCase*, DType>> all;
  for_named(flags, [&](const NamedCase& c, DType dtype) { all.emplace_back(&c, dtype); });
  std::vector<Outcome> outcomes(all.size());
  const Subject s = subject_of(target, flags.exact);
  Underway underway(std::ssize(all));
  in_parallel(std::ssize(all), flags.threads, [&](std::int64_t i) {
    const auto& [c, dtype] = all[static_cast<std::size_t>(i)];
    const std::string what = c->name + " of " + std::string(name(dtype));
    underway.begin(what);
    Outcome& outcome = outcomes[static_cast<std::size_t>(i)];
    outcome = c->run(s, dtype);
    underway.end(what, outcome.passed() ? "" : outcome.failure.substr(0, 400));
  });
  Report report;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& [c, dtype] = all[i];
    const Outcome& outcome = outcomes[i];
    ++report.cases;
    for (const std::string& text : outcome.skipped) report.skipped.push_back(c->name + ": " + text);
    if (flags.is_sm90() && outcome.failure.find("cannot run this problem") != std::string::npos)
      report.skipped.push_back(c->name + ": left to cuda:sm_80");
    else if (!outcome.passed())
      report.failures.push_back({s.name, c->name, c->name + " dtype=" + std::string(name(dtype)), "", outcome.failure});
  }
  add(totals, report, {});
  std::cout << "named: " << report.cases << " cases, " << report.failures.size() << " failed, " << seconds_since(start)
            << " s" << std::endl;
  if (report.failures.empty()) note_done(flags, "named");
}

int run(const Flags& flags) {
  if (const std::string missing = cuda::engine().missing(); !missing.empty()) {
    std::cout << "skipped, there is no GPU: " << missing << std::endl;
    return 0;
  }
  const Target target{flags.backend, {DeviceType::cuda, 0}, flags.metadata};
  std::cout << cuda::engine().caps(0).name << ", " << flags.threads << " threads" << std::endl;
  if (flags.streams) {
    const Findings findings = check_streams_on_device();
    std::cout << findings.looked_at << " cases, 0 distinct kernels, " << findings.failed << " failures" << std::endl;
    return findings.failed > 0;
  }
  Totals totals;
  if (!flags.case_line.empty()) {
    const Subject s[] = {subject_of(target, flags.exact)};
    add(totals, conformance::run(s, {.case_line = flags.case_line, .dtypes = flags.dtypes}), {});
  } else {
    for (std::uint64_t seed = flags.first_seed; seed <= flags.last_seed; ++seed) run_suite(flags, target, seed, totals);
    if (flags.named) run_named(flags, target, totals);
  }
  for (const std::string& note : cuda::engine().notes()) std::cout << "note: " << note << '\n';
  std::cout << totals.cases << " cases, " << totals.kernels.size() << " distinct kernels, " << totals.failures
            << " failures" << std::endl;
  return totals.failures > 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Flags flags = parse(argc, argv);
    static const gpu::GpuBackend sm90("cuda", cuda::engine(), 90);  // not yet in the library's own list
    if (flags.is_sm90()) append_backend(sm90);
    if (flags.list_specs) return list_specs(flags);
    if (!flags.pack.empty()) return make_pack(flags);
    return run(flags);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tessera_gpu_conformance: %s\n", error.what());
    return 2;
  }
}
