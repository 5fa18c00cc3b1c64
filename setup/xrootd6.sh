#!/usr/bin/env bash
# A current XRootD server and its clients, in build/xrootd6: what Debian 12 does not have, for the tests of the plugin against XRootD 6.
# Built from the source distribution that PyPI has under the name xrootd (about ten minutes of CPU; nothing where it is there already).
# Left out is what an XCache does not need, and XrdThrottle, which that distribution has not all of (vendor/inih).
# The Debian packages that it needs: setup/setup.sh xrootd6.
#   setup/xrootd6.sh [JOBS]
# Log: build/setup/xrootd6.log
set -euo pipefail
cd "$(dirname "$0")/.."
readonly version=6.2.1 sha256=b959c8c41e948f89272625f2a0a6994008465272027bffec71b01d0c7e278cba
readonly jobs=${1:-2} prefix=$PWD/build/xrootd6 log=$PWD/build/setup/xrootd6.log
readonly work=$prefix.work stamp=$prefix/built-by
umask 022
mkdir -p build/setup
exec 9>"$log.lock"
flock 9
cmp --silent "$0" "$stamp" && exit 0
echo "building XRootD $version in $prefix (log: $log)"

build() {
  rm -rf "$work" "$prefix"
  mkdir -p "$work"
  echo "xrootd==$version --hash=sha256:$sha256" >"$work/requirements.txt"
  build/uv/bin/pip download --quiet --no-deps --no-binary xrootd --require-hashes --dest "$work" -r "$work/requirements.txt"
  tar -xzf "$work/xrootd-$version.tar.gz" -C "$work"
  sed -i -E '/add_subdirectory\( Xrd(Throttle|ClHttp|ClS3|Ec|Secgsi|Seckrb5|Secpwd|Secztn|Frm|Ffs|Bwm|Ssi|OssArc|OssCsi|OssStats|HttpTapeApi|HttpTpc|HttpCors|Http|Macaroons|Voms|Ceph|SciTokens|OssMirage) \)/d' \
    "$work/xrootd-$version/src/CMakeLists.txt"
  sed -i -E '/add_subdirectory\((tests|docs)\)/d' "$work/xrootd-$version/CMakeLists.txt"
  cmake -S "$work/xrootd-$version" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release "-DCMAKE_INSTALL_PREFIX=$prefix" \
    -DCMAKE_INSTALL_LIBDIR=lib "-DCMAKE_INSTALL_RPATH=$prefix/lib" \
    -DENABLE_{PYTHON,KRB5,VOMS,FUSE,MACAROONS,SCITOKENS,READLINE,HTTP,XRDEC,XRDCLHTTP,TESTS,CEPH}=OFF
  cmake --build "$work/build" -j "$jobs"
  cmake --install "$work/build"
}
set +e  # which would not hold inside a condition
(set -e; build) >"$log" 2>&1 9>&-
status=$?
set -e
if [ $status -ne 0 ]; then
  tail -n 25 "$log" | sed 's/^/    /'
  echo "building XRootD $version failed; the whole log: $log" >&2
  exit 1
fi
rm -rf "$work"
cp "$0" "$stamp"
