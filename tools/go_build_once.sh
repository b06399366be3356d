# Sourced by what builds programs with Go once for each pin, and keeps them in the cache: build_once below. Two that run at a time
# build once; what was interrupted is built anew.

cache=${GANTRY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/gantry}

# pinned_version FILE MODULE: the version that a go.mod names.
pinned_version() { sed -n "s,^.*$2 \(v[0-9.]*\)\( .*\)*\$,\1,p" "$1" | head -n 1; }

# go_tools FOLDER OPTION...: builds into $work the programs that FOLDER's go.mod names as tools.
go_tools() {
  local folder=$1
  shift
  (cd "$folder" && nice -n 19 "$go" build -p "$(nproc)" -trimpath -o "$work/" "$@" tool >&2)
}

# build_once NAME WHAT BUILD ARGUMENT... <PINS: prints the folder that the function BUILD fills, as $work, with WHAT. PINS are
# all that it depends on. With --is-built as the ARGUMENT it only tells, by its exit status, whether the folder is there.
build_once() {
  local name=$1 what=$2 build=$3 folder
  folder=$cache/$name-$(sha256sum | cut -c1-16)
  if [[ ${4-} == --is-built ]]; then
    [[ -e $folder/complete ]]
    return
  fi
  if [[ ! -e $folder/complete ]]; then
    mkdir -p "$cache"
    exec 9>"$cache/$name.lock"
    flock 9
  fi
  if [[ ! -e $folder/complete ]]; then
    echo "$0: building $what" >&2
    go=$("$tools/go-path")
    [[ ! -d $go/../pkg/tool ]] || export GOROOT=${go%/bin}
    go=$go/go
    export GOFLAGS=-mod=readonly CGO_ENABLED=0 GOTOOLCHAIN=local GOWORK=off
    work=$(mktemp -d "$cache/$name.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    "$build"
    touch "$work/complete"
    chmod 755 "$work"
    rm -rf "$folder"
    mv "$work" "$folder"
    trap - EXIT
  fi
  echo "$folder"
}
