#!/usr/bin/env bash
# The core's tests under AddressSanitizer + UBSan (leaks too) and under ThreadSanitizer, and the plugin's tests in a real xrootd under UBSan.
# Not under AddressSanitizer there: a program that was not built with it has to preload it, and with Debian 12's even curl then waits for ever.
#   xcache-plugin/sanitize.sh [core|plugin]...     both, where none is named
set -euo pipefail
cd "$(dirname "$0")/.."
readonly build=$PWD/build
parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(core plugin)

# built FOLDER SANITIZERS TARGET...
built() {
  local folder=$1 sanitizers=$2
  shift 2
  cmake -S xcache-plugin -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE=Debug "-DSMARTCACHE_SANITIZE=$sanitizers"
  cmake --build "$folder" --target "$@"
}

export UBSAN_OPTIONS=print_stacktrace=1
for part in "${parts[@]}"; do
  case $part in
    core)
      built "$build/asan" address,undefined core_test plugin_test policies_test
      "$build/asan/core_test" --gtest_brief=1
      "$build/asan/policies_test" --gtest_brief=1
      "$build/asan/plugin_test" --gtest_brief=1
      built "$build/tsan" thread core_test
      # Its shadow memory has fixed places, which a randomised address space may take.
      TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1 setarch -R "$build/tsan/core_test" --gtest_brief=1
      ;;
    plugin)
      built "$build/ubsan" undefined XrdPfcSmartCache-5
      SMARTCACHE_PLUGIN=$build/ubsan/libXrdPfcSmartCache.so .venv/bin/pytest xcache-plugin/plugin/tests
      ;;
    *)
      echo "usage: xcache-plugin/sanitize.sh [core|plugin]..." >&2
      exit 2
      ;;
  esac
done
