// The public view of the CUDA runtime: what is found, and the files that it keeps.
#include "cuda/engine.hpp"
#include "tessera/kernels.hpp"

namespace tessera {
inline namespace TESSERA_API_NAMESPACE {
namespace {

KernelFile described(const cuda::KernelImage& image) {
  KernelFile file;
  file.name = image.name, file.spec = image.spec, file.arch = image.arch, file.compiler = image.compiler;
  return file;
}

}  // namespace

GpuReport gpu_report() {
  cuda::CudaEngine& engine = cuda::engine();
  const cuda::Driver& driver = engine.driver();
  GpuReport report;
  report.missing = driver.missing();
  report.driver = driver.path();
  if (driver.version() > 0) report.driver_version = cuda::version_text(driver.version());
  for (int i = 0; i < driver.devices(); ++i) {
    const gpu::Caps& caps = driver.caps(i);
    report.gpus.push_back(
        {caps.name, caps.arch, caps.sms, caps.smem_block_bytes, caps.l2_bytes, caps.dram_bytes_s, caps.tensor_flops});
  }
  const cuda::Compiler::About& about = engine.store().compiler().about();
  report.compiler = {about.path, about.how, about.version, about.archs, about.missing};
  report.cache = engine.store().disk().directory();
  for (const cuda::Pack& pack : engine.store().packs()) report.packs.push_back(pack.path());
  report.notes = engine.notes();
  return report;
}

void use_nvrtc(std::string_view path) { cuda::engine().use_nvrtc(std::string(path)); }

std::vector<KernelFile> kernel_cache() {
  std::vector<KernelFile> all;
  for (const cuda::DiskCache::File& file : cuda::engine().store().disk().files()) {
    KernelFile one = file.image ? described(*file.image) : KernelFile{};
    one.path = file.path, one.bytes = file.bytes, one.damage = file.damage;
    all.push_back(std::move(one));
  }
  return all;
}

std::size_t clear_kernel_cache(bool damaged_only) {
  const cuda::DiskCache& disk = cuda::engine().store().disk();
  std::vector<cuda::DiskCache::File> files = disk.files();
  if (damaged_only) std::erase_if(files, [](const cuda::DiskCache::File& file) { return file.damage.empty(); });
  return disk.remove(files);
}

std::vector<KernelFile> read_kernel_pack(const std::string& path) {
  const cuda::Pack pack(path);
  std::vector<KernelFile> all;
  for (const cuda::Pack::Entry& entry : pack.entries()) {
    KernelFile one;
    try {
      one = described(pack.read(entry));
    } catch (const Error& error) {
      one.name = entry.name, one.spec = entry.spec, one.arch = entry.arch, one.damage = error.what();
    }
    one.path = path, one.bytes = entry.bytes;
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace TESSERA_API_NAMESPACE
}  // namespace tessera
