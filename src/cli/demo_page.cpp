#include "cli/demo_page.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

namespace tessera::cli::demo {
namespace {

// Bytes that start a character; the rest continue one.
std::size_t columns(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}
std::string right(const std::string& text, std::size_t width) {
  return columns(text) < width ? std::string(width - columns(text), ' ') + text : text;
}

// Eighths of a character, so that a short bar is as long as it should be; never shorter than one eighth.
std::string bar(double share, int width) {
  static constexpr std::string_view eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int total = std::max(1, static_cast<int>(std::lround(share * width * 8)));
  std::string text;
  for (int i = 0; i < total / 8; ++i) text += "█";
  return text + std::string(eighths[total % 8]);
}

// Of the error allowed; a failure may use it many thousand times over.
std::string used(double share) {
  return share < 10 ? fmt::format("{:.0f} %", 100 * share) : fmt::format("{:.0e} x", share);
}

std::string towards(std::int64_t distance) {
  if (distance == 0) return "to itself";
  const std::int64_t steps = std::abs(distance);
  const std::string place = distance < 0 ? "before it" : "after it";
  return steps == 1 ? "to the token " + place : fmt::format("{} tokens {}", steps, place);
}

}  // namespace

Page::Page(const Answer& answer) : answer_(answer), colour_(isatty(STDOUT_FILENO) == 1 && !std::getenv("NO_COLOR")) {}

void Page::say(const std::string& text) const { answer_.say(text + "\n"); }
std::string Page::bold(const std::string& text) const { return colour_ ? "\x1b[1m" + text + "\x1b[0m" : text; }
std::string Page::verdict(bool passed) const {
  const std::string word = passed ? "✓" : "✗ FAILED";
  return colour_ ? fmt::format("\x1b[{}m{}\x1b[0m", passed ? 32 : 31, word) : word;
}
void Page::title(int number, const std::string& text) const { say("\n" + bold(fmt::format("{}  {}", number, text))); }

void Page::opening(const std::string& backend, int threads) const {
  say(bold(fmt::format("Tessera {}", version())) + ": exact attention that never writes the N x N matrix down");
  say(fmt::format("Here: {}, {} thread{}.", backend, threads, threads == 1 ? "" : "s"));
}

void Page::layers_heading(const Data& data) const {
  title(1, fmt::format("Real attention: {} layers of MiniLM, {} heads of {} dims, {} tokens", data.layers.size(),
                       data.heads, data.dim, data.count()));
  say("   The model reads this project's architecture page. Error: the largest |o - fp64|");
  say("   over all heads, rows and dims; standard attention is in the same type. Rule: the");
  say("   share used of the error allowed. Time: all heads, best of 24, standard on OpenBLAS.\n");
  say("                  error against fp64                   time, ms");
  say("   layer  type   Tessera   standard   rule      Tessera  standard   ratio");
}

void Page::layer(const LayerResult& r) const {
  const std::string standard =
      r.standard_missing.empty() ? fmt::format("{:8.3f}  {:5.1f}x", r.standard_ms, r.standard_ms / r.ms) : "       -";
  say(fmt::format("   {:5}  {:<4}   {:7.1e}    {:7.1e}  {:>5} {}   {:8.3f}  {}", r.layer, name(r.dtype), r.error,
                  r.standard_error, used(r.allowance_used), verdict(r.passed), r.ms, standard));
  if (!r.passed) say("          " + r.failure);
}

std::string Page::cell(float weight) const {
  // By the square root, so that small weights show.
  const double x = std::sqrt(std::clamp(static_cast<double>(weight), 0.0, 1.0));
  if (colour_) {
    static constexpr int ramp[] = {233, 53, 89, 125, 161, 197, 203, 209, 216, 223, 230};
    constexpr int last = static_cast<int>(std::size(ramp)) - 1;
    return fmt::format("\x1b[48;5;{}m  \x1b[0m", ramp[std::min(last, static_cast<int>(x * (last + 1)))]);
  }
  if (x < 0.1) return "  ";
  if (x < 0.2) return " ·";
  return x < 0.4 ? "░░" : x < 0.6 ? "▒▒" : x < 0.8 ? "▓▓" : "██";
}

void Page::picture(const Data& data, const Picture& p) const {
  title(2, fmt::format("What a head looks at: layer {}, head {}", p.layer, p.head));
  say(fmt::format("   Of all its weight, {:.0f} % goes {}. Rows are queries, columns", 100 * p.share,
                  towards(p.distance)));
  say("   keys; on the right is the key that gets most. The weights are attention()'s output");
  say(fmt::format("   with the unit matrix as V, each of the {} x {} within the rule ({} used {}).\n", p.tokens,
                  p.tokens, used(p.allowance_used), verdict(p.passed)));
  if (!p.passed) say("   " + p.failure);
  const auto token = [&](std::int64_t i) { return data.tokens[static_cast<std::size_t>(i)]; };
  std::string ruler(14, ' ');
  for (std::int64_t i = 0; i < p.count; ++i) ruler += i % 2 == 0 ? fmt::format("{:2}", i) : i + 1 < p.count ? "  " : "";
  say(ruler);
  for (std::int64_t row = 0; row < p.count; ++row) {
    std::string cells;
    std::int64_t most = 0;
    for (std::int64_t key = 0; key < p.tokens; ++key) {
      if (p.weight(row, key) > p.weight(row, most)) most = key;
      if (key >= p.first && key < p.first + p.count) cells += cell(p.weight(row, key));
    }
    say(fmt::format("{} {:2} {} {:3.0f}% {}", right(token(p.first + row), 10), row, cells,
                    100 * static_cast<double>(p.weight(row, most)), token(most)));
  }
  std::string legend(11, ' ');
  for (const float weight : {0.02f, 0.08f, 0.25f, 0.5f, 0.9f})
    legend += fmt::format("   {} {:.0f} %", cell(weight), 100 * static_cast<double>(weight));
  say(legend);
}

void Page::long_head(const LongHead& r, int threads) const {
  title(3, fmt::format("A long text: {} tokens, one causal head of {} dims, f32", r.tokens, r.dim));
  constexpr int width = 36;
  const double ours = r.peak_bytes > 0 ? r.peak_bytes : r.workspace_bytes + r.tensor_bytes;
  const double most = std::max(ours, r.scores_bytes);
  say(fmt::format("   standard  {} {}, its scores alone", bar(r.scores_bytes / most, width),
                  bytes_text(r.scores_bytes)));
  say(fmt::format("   Tessera   {} {}, {}", bar(ours / most, width), bytes_text(ours),
                  r.peak_bytes > 0 ? "the peak of the whole process" : "tensors and workspace"));
  say(fmt::format("   workspace {}, tensors {}, {:.2f} s, {:.0f} GFLOP/s on {} thread{} ({})",
                  bytes_text(r.workspace_bytes), bytes_text(r.tensor_bytes), r.seconds, r.gflops, threads,
                  threads == 1 ? "" : "s", r.backend));
  say(fmt::format("   {} sampled rows against fp64: {:.1e} (standard {:.1e}), rule: {} {}", r.rows_checked, r.error,
                  r.standard_error, used(r.allowance_used), verdict(r.passed)));
  if (!r.passed) say("   " + r.failure);
}

void Page::four_numbers(const FourNumbers& f) const {
  title(4, "Why pieces are exact: scores 2 1 3 0, values 1 2 3 4, two keys at a time");
  say("   A piece keeps m, its largest score; l, the sum of e^(score - m); o, the same sum");
  say("   weighted by the values. A larger m scales the other's l and o: that is all.");
  for (std::size_t i = 0; i < 2; ++i) {
    const Partial& t = f.tile[i];
    const std::size_t a = 2 * i, b = a + 1;
    const auto term = [&](std::size_t key) {
      return fmt::format("e^{:.0f}", static_cast<double>(FourNumbers::scores[key]) - t.m);
    };
    const std::string l = fmt::format("{} + {}", term(a), term(b));
    const std::string o =
        fmt::format("{:.0f} {} + {:.0f} {}", FourNumbers::values[a], term(a), FourNumbers::values[b], term(b));
    say(fmt::format("   {}, {}  m {:.0f}  l = {:<20} = {:.4f}  o = {:<20} = {:.4f}", a, b, t.m, l, t.l, o, t.o));
  }
  const Partial &a = f.tile[0], &b = f.tile[1], &m = f.merged;
  const auto joined = [&](double x, double y) { return fmt::format("{:.4f} e^{:.0f} + {:.4f}", x, a.m - m.m, y); };
  say(fmt::format("   merge m {:.0f}  l = {:<20} = {:.4f}  o = {:<20} = {:.4f}", m.m, joined(a.l, b.l), m.l,
                  joined(a.o, b.o), m.o));
  say(fmt::format("   {}    attention() over all four: {:.5f}    fp64: {:.5f} {}",
                  bold(fmt::format("o / l = {:.5f}", f.answer)), f.at_once, f.exact, verdict(f.passed)));
}

void Page::closing(int checks, int failed, double seconds) const {
  say("");
  if (failed == 0)
    say(bold(fmt::format("All {} checks against fp64 passed", checks)) + fmt::format(" ({:.1f} s). ", seconds) +
        "The rule: docs/contracts.md, Accuracy.");
  else
    say(bold(fmt::format("{} of {} checks against fp64 failed", failed, checks)) +
        fmt::format(" ({:.1f} s).", seconds));
}

// ------------------------------------------------------------------------------------------------------------- JSON
namespace {
nlohmann::ordered_json with_failure(nlohmann::ordered_json json, bool passed, const std::string& failure) {
  json["passed"] = passed;
  if (!passed) json["failure"] = failure;
  return json;
}
}  // namespace

nlohmann::ordered_json json_of(const LayerResult& r) {
  nlohmann::ordered_json json{{"layer", r.layer},
                              {"dtype", std::string(name(r.dtype))},
                              {"error", r.error},
                              {"standard_error", r.standard_error},
                              {"allowance_used", r.allowance_used},
                              {"ms", r.ms}};
  if (r.standard_missing.empty()) json["standard_ms"] = r.standard_ms;
  else json["standard_ms"] = nullptr, json["standard_missing"] = r.standard_missing;
  return with_failure(std::move(json), r.passed, r.failure);
}

nlohmann::ordered_json json_of(const Data& data, const Picture& p) {
  nlohmann::ordered_json json{{"layer", p.layer}, {"head", p.head},   {"distance", p.distance},
                              {"share", p.share}, {"first", p.first}, {"allowance_used", p.allowance_used}};
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (std::int64_t row = 0; row < p.count; ++row) {
    const auto begin = p.weights.begin() + row * p.tokens + p.first;
    rows.push_back({{"token", data.tokens[static_cast<std::size_t>(p.first + row)]},
                    {"weights", std::vector<float>(begin, begin + p.count)}});
  }
  json["rows"] = std::move(rows);
  return with_failure(std::move(json), p.passed, p.failure);
}

nlohmann::ordered_json json_of(const LongHead& r) {
  nlohmann::ordered_json json{{"tokens", r.tokens},
                              {"dim", r.dim},
                              {"backend", r.backend},
                              {"seconds", r.seconds},
                              {"gflops", r.gflops},
                              {"standard_scores_bytes", r.scores_bytes},
                              {"tensor_bytes", r.tensor_bytes},
                              {"workspace_bytes", r.workspace_bytes}};
  if (r.peak_bytes > 0) json["process_peak_bytes"] = r.peak_bytes;
  else json["process_peak_bytes"] = nullptr;
  json["rows_checked"] = r.rows_checked;
  json["error"] = r.error, json["standard_error"] = r.standard_error, json["allowance_used"] = r.allowance_used;
  return with_failure(std::move(json), r.passed, r.failure);
}

nlohmann::ordered_json json_of(const FourNumbers& f) {
  const auto of = [](const Partial& p) { return nlohmann::ordered_json{{"m", p.m}, {"l", p.l}, {"o", p.o}}; };
  return {{"scores", f.scores},     {"values", f.values}, {"tiles", {of(f.tile[0]), of(f.tile[1])}},
          {"merged", of(f.merged)}, {"answer", f.answer}, {"at_once", f.at_once},
          {"exact", f.exact},       {"passed", f.passed}};
}

}  // namespace tessera::cli::demo
