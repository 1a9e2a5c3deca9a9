#include "cli/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"

namespace tessera::cli {
namespace {

bool is_number(const std::string& cell) {
  return cell.empty() || cell == "-" || (cell[0] >= '0' && cell[0] <= '9') || (cell[0] == '-' && cell.size() > 1);
}

}  // namespace

std::string Table::text() const {
  std::vector<std::size_t> width(rows_[0].size());
  std::vector<bool> right(rows_[0].size(), rows_.size() > 1);
  for (std::size_t r = 0; r < rows_.size(); ++r)
    for (std::size_t c = 0; c < rows_[r].size(); ++c) {
      width[c] = std::max(width[c], rows_[r][c].size());
      if (r > 0 && !is_number(rows_[r][c])) right[c] = false;
    }
  std::string all;
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c)
      line += right[c] ? fmt::format("{:>{}}  ", row[c], width[c]) : fmt::format("{:<{}}  ", row[c], width[c]);
    all += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return all;
}

std::string bytes_text(double bytes) {
  constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < std::size(units)) bytes /= 1024, ++unit;
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, units[unit]);
}

Answer::Answer(const std::string& json_path) : path_(json_path) {
  if (path_.empty()) return;
  file_ = path_ == "-" ? stdout : std::fopen(path_.c_str(), "w");
  if (!file_) throw Misuse(fmt::format("cannot write {}: {}", path_, std::strerror(errno)));
}

Answer::~Answer() {
  if (file_ && file_ != stdout) std::fclose(file_);
}

void Answer::say(const std::string& text) const {
  if (!for_people()) return;
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void Answer::write(const nlohmann::ordered_json& json) {
  if (!file_) return;
  // A name from the user may hold any bytes: what is no UTF-8 is replaced.
  const std::string text = json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  if (std::fwrite(text.data(), 1, text.size(), file_) != text.size() || std::fflush(file_) != 0)
    throw Misuse(fmt::format("cannot write {}: {}", path_, std::strerror(errno)));
}

}  // namespace tessera::cli
