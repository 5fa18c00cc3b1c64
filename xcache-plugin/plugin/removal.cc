#include "removal.hh"

#include <dlfcn.h>

#include <cerrno>
#include <memory>
#include <type_traits>
#include <utility>

#include "XrdCl/XrdClBuffer.hh"
#include "XrdCl/XrdClFileSystem.hh"

namespace smartcache {
namespace {

constexpr char kLibrary[] = "libXrdPfc-" SMARTCACHE_XROOTD_PLUGIN_VERSION ".so";
constexpr char kGetInstance[] = "_ZN6XrdPfc5Cache11GetInstanceEv";
constexpr char kUnlinkFile[] = "_ZN6XrdPfc5Cache10UnlinkFileERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEb";
constexpr char kGetFile[] = "_ZN6XrdPfc5Cache7GetFileERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEPNS_2IOExx";
constexpr char kNoFile[] = "/smartcache/wakes/who/waits";
constexpr uint16_t kClientSeconds = 15;

// Member functions take `this` as their first argument in the Itanium C++ ABI, which all of XRootD's platforms use.
using GetInstance = void* (*)();
using UnlinkFile = int (*)(void* cache, const std::string& path, bool fail_if_open);
using GetFile = void* (*)(void* cache, const std::string& path, void* io, long long offset, long long size);

Removal InProcess() {
  void* library = ::dlopen(kLibrary, RTLD_NOLOAD | RTLD_LAZY);
  if (!library) return {{}, std::string(kLibrary) + " is not loaded"};
  const auto get_instance = reinterpret_cast<GetInstance>(::dlsym(library, kGetInstance));
  const auto unlink_file = reinterpret_cast<UnlinkFile>(::dlsym(library, kUnlinkFile));
  if (!get_instance || !unlink_file) return {{}, std::string(kLibrary) + " exports no XrdPfc::Cache::UnlinkFile"};
  const auto get_file = reinterpret_cast<GetFile>(::dlsym(library, kGetFile));
  return {[get_instance, unlink_file, get_file](const std::string& lfn) {
            void* const cache = get_instance();
            const int result = unlink_file(cache, lfn, true);
            // An open of this file that came meanwhile waits for the end of the removal, of which UnlinkFile before XRootD 5.6 tells
            // nobody: the open would wait until another file is opened or closed. GetFile tells all that wait, also where, as of a file of
            // unknown size, it gets none: it does nothing else then.
            if (result != -EBUSY && get_file) get_file(cache, kNoFile, nullptr, 0, -1);
            return result;
          },
          "XrdPfc::Cache::UnlinkFile"};
}

template <typename FileSystem, typename = void>
struct Sends : std::false_type {};
template <typename FileSystem>
struct Sends<FileSystem, std::void_t<decltype(std::declval<FileSystem&>().SendCache(std::string(), std::declval<XrdCl::Buffer*&>()))>>
    : std::true_type {};

// A template, so that it compiles where XrdCl has no SendCache.
template <typename FileSystem>
Removal ByClient(const std::string& port) {
  if constexpr (!Sends<FileSystem>::value) {
    return {{}, "XRootD before 5.6 has no `cache evict`"};
  } else {
    const auto server = std::make_shared<FileSystem>(XrdCl::URL("root://localhost:" + port));
    return {[server](const std::string& lfn) {
              if (lfn.find_first_of(" \t\r\n") != std::string::npos) return -EINVAL;  // a command's words are separated by blanks
              XrdCl::Buffer* answer = nullptr;
              const XrdCl::XRootDStatus status = server->SendCache("evict " + lfn, answer, kClientSeconds);
              delete answer;
              if (status.IsOK()) return 0;
              return status.GetErrorMessage().find("in use") != std::string::npos ? -EBUSY : -EIO;
            },
            "`cache evict`, sent to localhost:" + port};
  }
}

}  // namespace

Removal FindRemoval(EvictThrough through, const std::string& port) {
  if (through == EvictThrough::kProcess) return InProcess();
  if (through == EvictThrough::kClient) return ByClient<XrdCl::FileSystem>(port);
  Removal found = InProcess();
  if (found.remove) return found;
  Removal other = ByClient<XrdCl::FileSystem>(port);
  if (!other.remove) other.how = found.how + ", and " + other.how;
  return other;
}

}  // namespace smartcache
