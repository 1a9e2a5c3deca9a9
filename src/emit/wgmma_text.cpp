// Operand lists of wgmma.mma_async.
#include "emit/wgmma_text.hpp"

#include <locale>
#include <set>
#include <sstream>

#include "problem/fail.hpp"

namespace tessera::emit {
namespace {

void check(const WgmmaForm& f) {
  if (f.n < 8 || f.n > 256 || f.n % 8 != 0)
    problem::fail(Code::internal, "a product of the warpgroup has 8 to 256 columns, a multiple of 8, not ", f.n);
  if (f.type != DType::bf16 && f.type != DType::f16)
    problem::fail(Code::internal, "products of the warpgroup take bf16 and f16");
  if (f.a_in_registers && f.a_mn_major)
    problem::fail(Code::internal, "an operand in registers has rows of k: it cannot be MN-major");
}

// separated(3, 2, f): f(2), f(3), f(4) with commas between.
template <class F>
void separated(std::ostream& out, int count, int from, F&& one) {
  for (int i = 0; i < count; ++i) {
    if (i > 0) out << ", ";
    one(from + i);
  }
}

void write(std::ostream& out, const WgmmaForm& f) {
  const bool half = f.type == DType::f16;
  const char *element = half ? "f16" : "bf16", *flag[] = {"false", "true"}, *major[] = {"Major::k", "Major::mn"};
  const int accumulators = f.n / 2, a_words = f.a_in_registers ? 4 : 1, b = accumulators + a_words;
  const auto number = [&](int i) { out << '%' << i; };
  out << "template <>\nstruct Product<" << element << ", " << f.n << ", " << flag[f.a_in_registers] << ", "
      << major[f.a_mn_major] << ", " << major[f.b_mn_major] << "> {\n  PTX void start(float (&d)[" << accumulators
      << "], " << (f.a_in_registers ? "const u32* a" : "u64 a") << ", u64 b, bool accumulate) {\n    INSN(::sim::wgmma_"
      << (f.a_in_registers ? "rs" : "ss") << "(d, " << f.n << ", a, b, "
      << (f.a_in_registers ? ""
          : f.a_mn_major   ? "true, "
                           : "false, ")
      << flag[f.b_mn_major] << ", accumulate, ::sim::Half::" << element
      << "),\n         asm volatile(\"{\\n.reg .pred p;\\nsetp.ne.b32 p, %" << b + 1
      << ", 0;\\n\"\n             \"wgmma.mma_async.sync.aligned.m64n" << f.n << "k16.f32." << element << '.' << element
      << " {";
  separated(out, accumulators, 0, number);
  out << "}, ";
  if (f.a_in_registers) out << '{', separated(out, 4, accumulators, number), out << '}';
  else number(accumulators);
  out << ", %" << b << ", p, 1, 1";
  if (!f.a_in_registers) out << ", " << f.a_mn_major;
  out << ", " << f.b_mn_major << ";\\n}\"\n             : ";
  separated(out, accumulators, 0, [&](int i) { out << "\"+f\"(d[" << i << "])"; });
  out << "\n             : ";
  if (f.a_in_registers) separated(out, 4, 0, [&](int i) { out << "\"r\"(a[" << i << "])"; });
  else out << "\"l\"(a)";
  out << ", \"l\"(b), \"r\"((i32)accumulate)));\n  }\n};\n";
}

}  // namespace

std::string wgmma_text(std::span<const WgmmaForm> forms) {
  std::ostringstream out;
  out.imbue(std::locale::classic());
  out << "// 9.7.15: wgmma.mma_async\nnamespace ptx {\n";
  for (const WgmmaForm& f : std::set<WgmmaForm>(forms.begin(), forms.end())) {
    check(f);
    write(out, f);
  }
  out << "}  // namespace ptx\n";
  return std::move(out).str();
}

}  // namespace tessera::emit
