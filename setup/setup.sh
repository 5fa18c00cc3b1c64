#!/usr/bin/env bash
# Set up everything that smartcache's demo and tests need, and nothing twice: Debian packages, the Python environment, Kafka's and Spark's jars,
# the plugin and the endpoint. A second run looks and is done in seconds. Root is needed for Debian packages only (sudo is used if you are not root).
#   setup/setup.sh           everything
#   setup/setup.sh NAME...   what setup/apt-packages-NAME.txt names too: lint, fuzz, deb, xrootd6; tests: core's and plugin's tests and benchmarks
# Logs: build/setup/*.log
set -euo pipefail
cd "$(dirname "$0")/.."
readonly uv_version=0.13.8 build=$PWD/build
readonly logs=$build/setup
export UV_PYTHON=/usr/bin/python3 UV_PROJECT_ENVIRONMENT=$PWD/.venv UV_NO_PROGRESS=1 DEBIAN_FRONTEND=noninteractive
# XRootD's servers have a user of their own, which has to be able to read what is built here.
umask 022
mkdir -p "$logs" && [ -w "$logs" ] || { echo "set-up: no permission to write $logs: was another user (root?) at work here?" >&2; exit 1; }
# Two set-ups at once would spoil each other's builds.
exec 9>"$logs/lock"
flock -n 9 || { echo "another set-up is running: waiting for it"; flock 9; }

# step NAME WHAT-TO-DO COMMAND…: run it with its output in a log; on failure show the log's end and the way out.
# In COMMAND `set -e` does not hold, as always in a condition: a function has to join its commands by &&. What COMMAND leaves running does not
# keep the lock.
step() {
  local name=$1 advice=$2 began=$SECONDS log failed=
  shift 2
  log=$logs/${name// /-}.log
  printf '  %-34s' "$name"
  : >"$log"
  if [ -t 1 ]; then
    follow "$name" "$log" 9>&- &
    follower=$!
  fi
  "$@" >"$log" 2>&1 9>&- || failed=yes
  unfollow
  if [ -z "$failed" ]; then
    printf 'ok %4d s\n' $((SECONDS - began))
  else
    printf 'FAILED\n\n'
    tail -n 25 "$log" | sed 's/^/    /'
    printf '\nset-up failed at: %s\nwhat to do: %s\nthe whole log: %s\n' "$name" "$advice" "$log" >&2
    exit 1
  fi
}

# follow NAME LOG: on a terminal, how long the step takes already and what its log says last.
follow() {
  local began=$SECONDS width said
  { width=$( (stty size <&3 2>/dev/null || true) | cut -d ' ' -f 2); } 3>&1
  while sleep 1 && kill -0 $$ 2>/dev/null; do
    said=$(tail -c 1000 "$2" | tr '\r' '\n' | sed '/^[[:space:]]*$/d' | tail -n 1 | tr -cd '[:print:]')
    said=${said:0:$((${width:-0} > 50 ? width - 46 : 34))}
    printf '\r  %-34s%6d s  %s\e[K' "$1" $((SECONDS - began)) "$said"
  done
}

# Take back what `follow` wrote behind the step's name.
unfollow() {
  [ -n "$follower" ] || return 0
  # Not by SIGTERM: one that has only just begun would run our own trap. Bash tells of a killed job as soon as it knows, maybe before the `wait`.
  { kill -KILL "$follower" && wait "$follower"; } 2>/dev/null || true
  follower=
  printf '\r  %-34s\e[K' "${name-}"
}
follower=
trap unfollow EXIT

packages_in() { sed 's/#.*//' "$@" | tr -s ' \n' '\n' | sed '/^$/d'; }

missing_packages() {
  local package
  for package in $(packages_in "$@"); do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || echo "$package"
  done
}

# On a terminal sudo may ask for a password: before the step, whose progress would write over the question.
ask_for_sudo() {
  [ "$(id -u)" -ne 0 ] && [ -t 1 ] && command -v sudo >/dev/null && [ -n "$(missing_packages "$@")" ] || return 0
  echo '  Debian packages are missing, and installing them needs root:'
  sudo -v || true  # the step itself says what is wrong
}

debian_packages() {
  local missing sudo=()
  mapfile -t missing < <(missing_packages "$@")
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo || { echo "not root, and no sudo: ask an administrator to install: ${missing[*]}"; return 1; }
    # Not --preserve-env, which many a sudoers file does not allow.
    sudo=(sudo env "DEBIAN_FRONTEND=$DEBIAN_FRONTEND")
  fi
  echo "installing: ${missing[*]}"
  "${sudo[@]}" apt-get update -q &&
    "${sudo[@]}" apt-get install -y -q --no-install-recommends "${missing[@]}"
}

uv_itself() {
  [ "$("$build/uv/bin/uv" --version 2>/dev/null | cut -d' ' -f2)" = "$uv_version" ] && return 0
  /usr/bin/python3 -m venv "$build/uv" &&
    "$build/uv/bin/pip" install --quiet "uv==$uv_version"
}

# Compiles the core's Python binding too.
python_environment() { "$build/uv/bin/uv" sync --locked --all-extras; }

# jars FOLDER: what setup/FOLDER/pom.xml names and needs, each bit as setup/FOLDER/SHA256SUMS says. The folder is there with all its jars or
# not at all.
jars() {
  local from=$PWD/setup/$1 target=$build/jars/$1
  cmp --silent "$from/pom.xml" "$target/pom.xml" && as_pinned "$from/SHA256SUMS" "$target" && return 0
  rm -rf "$target.new" &&
    mvn -B --no-transfer-progress --strict-checksums -f "$from/pom.xml" dependency:copy-dependencies -DincludeScope=runtime \
      "-DoutputDirectory=$target.new" &&
    cp "$from/pom.xml" "$target.new/pom.xml" || return 1
  as_pinned "$from/SHA256SUMS" "$target.new" || {
    echo "what was fetched is not what setup/$1/SHA256SUMS pins (see above). If setup/$1/pom.xml was changed on purpose, pin it anew:"
    echo "  (cd $target.new && sha256sum -- *) >setup/$1/SHA256SUMS"
    return 1
  }
  rm -rf "$target" && mv "$target.new" "$target"
}

# as_pinned SUMS FOLDER: whether FOLDER holds the files that SUMS names, as it says, and no others.
as_pinned() {
  [ -d "$2" ] || return 1
  (cd "$2" && sha256sum --check --strict --quiet "$1" && diff <(sed 's/^[^ ]*  //' "$1" | sort) <(ls -A | sort))
}

# Without its tests and benchmarks, which `make test` and `make bench` build.
plugin() {
  cmake -S xcache-plugin -B "$build/plugin" -G Ninja -DCMAKE_BUILD_TYPE=Release &&
    cmake --build "$build/plugin" --target plugin
}

plugin_tests() { cmake --build "$build/plugin"; }

endpoint() { inference/server/build.sh .venv/bin/python "$build/bin/smartcache-endpoint"; }

# A root that was made in a private folder (by debootstrap, for a chroot) may be closed to all users but root: no server with a user of its own
# could start there.
if [ "$(id -u)" -eq 0 ] && [ $((8#$(stat -c %a /) & 1)) -eq 0 ]; then
  echo "set-up: / may be entered by root only (mode $(stat -c %a /)), and XRootD's user has to: giving it Debian's own mode, 755"
  chmod 755 /
fi

network='is the package registry reachable? then run `make setup` again: it goes on where it stopped'
packages=(setup/apt-packages.txt) tests=
for name in "$@"; do
  if [ "$name" = tests ]; then tests=yes; else packages+=("setup/apt-packages-$name.txt"); fi
done
echo "set-up (logs in build/setup):"
ask_for_sudo "${packages[@]}"
step 'Debian packages' "look for the apt error above; $network" debian_packages "${packages[@]}"
step 'uv' "$network" uv_itself
step 'Python packages, core binding' "$network; a compiler error means that the core does not build here" python_environment
step 'Kafka jars' "$network" jars kafka
step 'Spark connector jars' "$network" jars spark
step 'XCache plugin' 'a compiler error: the plugin wants Debian 12 and its XRootD 5.5' plugin
step 'serving endpoint' "$network" endpoint
[ -z "$tests" ] || step 'tests of core and plugin' 'a compiler error: the tests want Debian 12 and its XRootD 5.5' plugin_tests
