// What a backend keeps with a plan beyond what every plan has: decided once, printed with it, used by its runs.
// Must not know: which backends there are.
#pragma once
#include <iosfwd>

namespace tessera::plans {

class Details {
 public:
  virtual ~Details() = default;
  // Lines as those of a plan, each begun with a new line.
  virtual void print(std::ostream& out) const = 0;
};

}  // namespace tessera::plans
