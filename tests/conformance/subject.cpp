#include "subject.hpp"

namespace tessera::conformance {
namespace {

Subject pinned(const std::string& backend) {
  Subject s{.name = backend.empty() ? "auto" : backend};
  s.run = [backend](const Inputs& inputs, const Outputs& outputs, const Options& options, const Exec& exec) {
    Options with = options;
    with.backend = backend;
    attention(inputs, outputs, with, exec);
  };
  s.workspace_bytes = [backend](const Inputs& inputs, const Outputs& outputs, const Options& options, int threads) {
    Options with = options;
    with.backend = backend;
    return plan(describe(inputs, outputs, with)).workspace_bytes(threads);
  };
  s.merge = [](const Outputs& a, const Outputs& b, const Outputs& out, const Exec& exec) { merge(a, b, out, exec); };
  return s;
}

}  // namespace

std::vector<Subject> subjects() {
  std::vector<Subject> all;
  for (const BackendInfo& info : backends())
    if (info.available) all.push_back(pinned(info.name));
  return all;
}

Subject subject(const std::string& backend) {
  std::string names;
  for (const BackendInfo& info : backends()) {
    if (info.available && (backend.empty() || info.name == backend || info.name.starts_with(backend + ":")))
      return pinned(info.name);
    if (info.name == backend)
      throw Error(Code::unsupported, "backend '" + backend + "' cannot run here: " + info.detail);
    names += (names.empty() ? "" : ", ") + info.name;
  }
  throw Error(Code::unsupported, "there is no backend '" + backend + "': it is one of " + names);
}

}  // namespace tessera::conformance
