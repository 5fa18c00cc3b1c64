#include "pfc_unlink.hh"

#include <dlfcn.h>

#include <cerrno>

namespace smartcache {
namespace {

constexpr char kLibrary[] = "libXrdPfc-" SMARTCACHE_XROOTD_PLUGIN_VERSION ".so";
constexpr char kGetInstance[] = "_ZN6XrdPfc5Cache11GetInstanceEv";
constexpr char kUnlinkFile[] = "_ZN6XrdPfc5Cache10UnlinkFileERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEb";

}  // namespace

PfcUnlink::PfcUnlink() {
  void* library = ::dlopen(kLibrary, RTLD_NOLOAD | RTLD_LAZY);
  if (!library) {
    problem_ = std::string(kLibrary) + " is not loaded";
    return;
  }
  get_instance_ = reinterpret_cast<GetInstance>(::dlsym(library, kGetInstance));
  unlink_file_ = reinterpret_cast<UnlinkFile>(::dlsym(library, kUnlinkFile));
  if (!get_instance_ || !unlink_file_) problem_ = std::string(kLibrary) + " exports no XrdPfc::Cache::UnlinkFile";
}

int PfcUnlink::operator()(const std::string& lfn) const {
  if (!problem_.empty()) return -ENOSYS;
  return unlink_file_(get_instance_(), lfn, true);
}

}  // namespace smartcache
