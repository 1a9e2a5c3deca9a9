// The quick suite on one backend, as fast as possible to the first failure: exit code 0 if nothing fails, 1 if
// something does. tools/mutate.py links it against mutated kernels.
//   tessera_mutant_check BACKEND CASES SEED
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>

#include "conformance/runner.hpp"

int main(int argc, char** argv) {
  using namespace tessera;
  using namespace tessera::conformance;
  if (argc != 4) {
    std::fprintf(stderr, "usage: tessera_mutant_check BACKEND CASES SEED\n");
    return 2;
  }
  try {
    const Subject all[] = {subject(argv[1])};
    RunOptions options{.cases = std::strtoll(argv[2], nullptr, 10), .seed = std::strtoull(argv[3], nullptr, 10)};
    options.shrink = false, options.max_failures = 1;
    options.named = false;
    Report report = run(all, options);
    if (report.failures.empty()) {  // the named cases last, in one type: most mutants are gone by now
      options.named = true, options.cases = 0, options.dtypes = {bf16};
      report = run(all, options);
    }
    for (const Failure& failure : report.failures) std::cout << failure << '\n';
    return report.failures.empty() ? 0 : 1;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 2;
  }
}
