// The demo as a page for people and as JSON.
// Must not know: how anything is computed.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/demo.hpp"
#include "cli/report.hpp"

namespace tessera::cli::demo {

// Says it part by part, as results come; colour only for a terminal that wants it.
class Page {
 public:
  explicit Page(const Answer& answer);

  void opening(const std::string& backend, int threads) const;
  void layers_heading(const Data& data) const;
  void layer(const LayerResult& result) const;
  void picture(const Data& data, const Picture& picture) const;
  void long_head(const LongHead& result, int threads) const;
  void four_numbers(const FourNumbers& result) const;
  void closing(int checks, int failed, double seconds) const;

 private:
  void title(int number, const std::string& text) const;
  void say(const std::string& text) const;
  std::string bold(const std::string& text) const;
  std::string verdict(bool passed) const;
  std::string cell(float weight) const;

  const Answer& answer_;
  bool colour_ = false;
};

nlohmann::ordered_json json_of(const LayerResult& result);
nlohmann::ordered_json json_of(const Data& data, const Picture& picture);
nlohmann::ordered_json json_of(const LongHead& result);
nlohmann::ordered_json json_of(const FourNumbers& result);

}  // namespace tessera::cli::demo
