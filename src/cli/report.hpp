// What commands print: tables for people, JSON for programs, and the numbers in both.
#pragma once
#include <cstdio>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace tessera::cli {

// Columns as wide as their longest cell; numbers right, words left.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

std::string bytes_text(double bytes);  // "4.0 GiB"

// Where a command's answer goes: JSON to a file, or to stdout in place of the table. The file is opened at once, so
// that a wrong path is known before anything is measured. Throws Misuse.
class Answer {
 public:
  explicit Answer(const std::string& json_path);
  ~Answer();
  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;

  bool for_people() const { return path_ != "-"; }
  // Prints to stdout unless JSON goes there.
  void say(const std::string& text) const;
  // Throws Misuse when it cannot be written.
  void write(const nlohmann::ordered_json& json);

 private:
  std::string path_;
  std::FILE* file_ = nullptr;  // nullptr: no JSON asked for
};

}  // namespace tessera::cli
