#include "cuda/kernel_store.hpp"

#include <filesystem>

#include "cuda/file_lock.hpp"
#include "problem/fail.hpp"

namespace tessera::cuda {

using gpu::Found;
using problem::fail;

KernelStore::KernelStore(const Settings& settings, int driver_version, Notes& notes)
    : settings_(settings),
      notes_(notes),
      compiler_(nvrtc_places(settings.nvrtc_option, settings.nvrtc), driver_version, notes),
      disk_(settings.cache, settings.no_cache, notes) {}

const std::vector<Pack>& KernelStore::packs() {
  std::call_once(packs_opened_, [this] {
    for (const std::string& path : settings_.packs) {
      try {
        packs_.emplace_back(path);
      } catch (const Error& error) {
        notes_.add(error.what());
      }
    }
  });
  return packs_;
}

// Why a pack that was made for this kernel does not serve.
std::string KernelStore::of_another_version(const gpu::KernelText& text, int device) {
  for (const Pack& pack : packs())
    for (const Pack::Entry& entry : pack.entries())
      if (entry.name == text.name && entry.spec == text.spec && runs_on(entry.arch, device))
        return " (" + pack.path() + " has it as another version of this library makes it: make the pack again)";
  return "";
}

const Pack::Entry* KernelStore::packed(const Digest& key, int device, const Pack*& pack) {
  for (const Pack& one : packs())
    if (const Pack::Entry* entry = one.find(key, device)) {
      pack = &one;
      return entry;
    }
  return nullptr;
}

KernelStore::Slot& KernelStore::slot(const Digest& key, int device) {
  std::lock_guard lock(mutex_);
  std::unique_ptr<Slot>& slot = slots_[{key, device}];
  if (!slot) slot = std::make_unique<Slot>();
  return *slot;
}

KernelStore::Code KernelStore::get(const gpu::KernelText& text, const Digest& key, int device) {
  Slot& s = slot(key, device);
  std::lock_guard lock(s.mutex);  // of this kernel: others compile at the same time
  if (!s.refusal.empty()) throw Error(tessera::Code::unsupported, s.refusal);
  if (!s.code.image) {
    if (!settings_.dump.empty()) dump(text, key, nullptr);
    s.code = fetch(text, key, device, s);
    if (!settings_.dump.empty()) dump(text, key, &s.code);
  }
  return s.code;
}

KernelStore::Code KernelStore::compiled_anew(const gpu::KernelText& text, const Digest& key, int device) {
  Slot& s = slot(key, device);
  std::lock_guard lock(s.mutex);
  s.code = compile(text, compiler_.arch_for(device), s);
  if (!settings_.dump.empty()) dump(text, key, &s.code);
  return s.code;
}

KernelStore::Code KernelStore::compile(const gpu::KernelText& text, const std::string& arch, Slot& slot) {
  try {
    auto image = std::make_shared<const KernelImage>(compiler_.compile(text, arch));
    disk_.store(*image);
    return {image, Found::nowhere};
  } catch (const Error& error) {
    slot.refusal = error.what();
    throw;
  }
}

KernelStore::Code KernelStore::fetch(const gpu::KernelText& text, const Digest& key, int device, Slot& slot) {
  const auto on_disk = [&](const std::string& arch, const std::string& compiler) -> Code {
    std::optional<KernelImage> image = disk_.find(key, arch, compiler);
    if (!image) return {};
    return {std::make_shared<const KernelImage>(std::move(*image)), Found::disk};
  };
  std::string arch = arch_name(device);
  const std::string installed = compiler_.id();
  if (!installed.empty())
    if (const Code code = on_disk(arch, installed); code.image) return code;
  const Pack* pack = nullptr;
  if (const Pack::Entry* entry = packed(key, device, pack)) {
    try {
      return {std::make_shared<const KernelImage>(pack->read(*entry)), Found::pack};
    } catch (const Error& error) {
      notes_.add(error.what());
    }
  }
  if (const Compiler::About& about = compiler_.about(); !about.missing.empty()) {
    // What another compiler made earlier is as good as what a pack holds.
    if (const Code code = on_disk(arch, ""); code.image) return code;
    fail(tessera::Code::unsupported, "the kernel ", text.name, " for ", arch, " (", text.spec, ") is not in the cache ",
         disk_.directory(), settings_.packs.empty() ? ", there is no pack (TESSERA_PACK)" : ", not in the packs",
         of_another_version(text, device), ", and ", about.missing);
  }
  arch = compiler_.arch_for(device);
  Digest lock_name = Digester().add_field(hex(key)).add_field(arch).done();
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < 8; ++i) number = number << 8 | lock_name[i];
  const std::string lock_path = disk_.lock_path();
  if (lock_path.empty()) return compile(text, arch, slot);
  const FileLock lock(lock_path, number, settings_.lock_patience);
  if (lock.ran_out())
    notes_.add("another process has held the lock on " + text.name + " in " + lock_path + " for " +
               std::to_string(settings_.lock_patience.count()) + " ms; compiled here as well");
  // Whoever had the lock before, or found the compiler under another name than before it was opened, has written it.
  if (const Code code = on_disk(arch, compiler_.id()); code.image) return code;
  return compile(text, arch, slot);
}

Found KernelStore::where(const Digest& key, int device) {
  {
    Slot& s = slot(key, device);
    std::unique_lock lock(s.mutex, std::try_to_lock);  // while it is being compiled it is nowhere
    if (lock && s.code.image) return Found::memory;
  }
  const std::string installed = compiler_.id();
  if (!installed.empty() && disk_.find(key, arch_name(device), installed)) return Found::disk;
  const Pack* pack = nullptr;
  if (packed(key, device, pack)) return Found::pack;
  if (!compiler_.about().missing.empty()) return disk_.find(key, arch_name(device), "") ? Found::disk : Found::nowhere;
  try {  // a compiler that is older than the device
    const std::string arch = compiler_.arch_for(device);
    return arch != arch_name(device) && disk_.find(key, arch, compiler_.id()) ? Found::disk : Found::nowhere;
  } catch (const Error&) {
    return Found::nowhere;
  }
}

void KernelStore::dump(const gpu::KernelText& text, const Digest& key, const Code* code) const {
  std::error_code error;
  std::filesystem::create_directories(settings_.dump, error);
  std::string stem = settings_.dump + "/" + text.name + "-" + hex(key).substr(0, 12), why;
  bool good = true;
  if (!code) {
    good = write_file(stem + ".cu", text.source, why);
  } else {
    const KernelImage& image = *code->image;
    stem += "." + image.arch;
    const char* const from = code->found == Found::disk ? "the cache" : code->found == Found::pack ? "a pack" : "now";
    good = write_file(stem + ".cubin", image.cubin, why) &&
           write_file(stem + ".txt",
                      image.spec + "\n" + image.arch + " by " + image.compiler + ", from " + from + "\n" +
                          std::to_string(image.registers) + " registers, " + std::to_string(image.stack_bytes) +
                          " bytes of stack, " + std::to_string(image.spill_bytes) + " bytes spilled, " +
                          std::to_string(image.smem_bytes) + " bytes of static and " + std::to_string(text.smem_bytes) +
                          " of dynamic shared memory, " + std::to_string(text.threads) + " threads\n" + image.log,
                      why);
  }
  if (!good) notes_.add("TESSERA_DUMP: " + stem + " cannot be written (" + why + ")");
}

}  // namespace tessera::cuda
