// `tessera check` where something is wrong: linked with the planted faults, so that there is something to find.
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/commands.hpp"
#include "cpu/fault.hpp"

namespace tessera::cli {
namespace {

class CheckCommand : public testing::Test {
 protected:
  void TearDown() override {
    cpu::planted = -1;
    std::remove(path_.c_str());
  }

  // Runs `tessera check` with these arguments; its JSON is then in `report`.
  int check(std::vector<std::string> arguments) {
    CLI::App app;
    Action chosen;
    add_check(app, chosen);
    arguments.insert(arguments.begin(), "check");
    arguments.insert(arguments.end(), {"--isa", "scalar", "--dtype", "f32", "--json", path_});
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them
    app.parse(arguments);
    const int code = chosen();
    std::ifstream file(path_);
    report = nlohmann::json::parse(file);
    return code;
  }

  nlohmann::json report;

 private:
  std::string path_ = testing::TempDir() + "tessera_check_command.json";
};

TEST_F(CheckCommand, AFaultIsExitCode1AndItsLineReplaysIt) {
  cpu::planted = static_cast<int>(cpu::Fault::scale_missing);
  EXPECT_EQ(check({"--cases", "5", "--max-failures", "1"}), exit_failed);
  EXPECT_FALSE(report["passed"]);
  ASSERT_FALSE(report["failures"].empty());
  const nlohmann::json failure = report["failures"][0];
  const std::string line = failure["case"], replay = failure["replay"];
  EXPECT_NE(replay.find("tessera check --backend cpu:scalar --case '" + line + "'"), std::string::npos) << replay;

  EXPECT_EQ(check({"--case", line}), exit_failed);
  EXPECT_EQ(report["cases"], 1);

  cpu::planted = -1;
  EXPECT_EQ(check({"--case", line}), exit_done);
  EXPECT_TRUE(report["passed"]);
}

}  // namespace
}  // namespace tessera::cli
