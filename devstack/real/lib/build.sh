# shellcheck shell=bash
# Builds programs from Go modules, once, into a cache outside the tree.
# Needs say.sh and go.sh.

GO_SOURCES=$(cd "$(dirname "${BASH_SOURCE[0]}")/../go" && pwd)
CACHE=${STAFFETTA_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/staffetta}

# go_build FOLDER [PACKAGE [ALIAS...]] prints the path of the program that go/FOLDER/PACKAGE builds; PACKAGE may be one of a required
# module too, such as example.com/module/cmd/program. The program is named after PACKAGE, or FOLDER without one, and its aliases are in
# the same folder. The cache entry is named by a digest of the sources and checksums: a new version is built again, and an existing entry
# is complete. If BUILD_NOTHING is set, a missing entry is an error.
go_build() {
  local folder=$1 package=${2:-.} name=$1 entry
  [ "$package" = . ] || name=${package##*/}
  entry=$CACHE/real/$name-$(module_version "$folder")-$(sources_digest "$folder")
  if [ ! -x "$entry/$name" ]; then
    [ -z "${BUILD_NOTHING:-}" ] || die "$name is not built yet"
    mkdir -p "$CACHE/real"
    (
      flock 9 # concurrent runs build once
      [ -x "$entry/$name" ] || build_entry "$folder" "$package" "$entry" "$name" "${@:3}"
    ) 9>"$CACHE/real/build.lock" || return
  fi
  printf '%s\n' "$entry/$name"
}

# The requirement of a module that is marked `// built here` is the one to build.
module_version() {
  sed -n 's#^.* \(v[0-9.]*\) // \(indirect; \)\?built here$#\1#p' "$GO_SOURCES/$1/go.mod"
}

sources_digest() {
  (cd "$GO_SOURCES/$1" && find -L . -type f | LC_ALL=C sort | xargs cat | sha256sum | cut -c1-12)
}

build_entry() {
  local folder=$1 package=$2 entry=$3 name=$4 version temporary alias began=$SECONDS
  version=$(module_version "$folder")
  need_go
  say "building $name $version once into $entry (this may take minutes)"
  temporary=$(mktemp -d "$CACHE/real/.building-$name.XXXXXX") || die "cannot write to $CACHE/real"
  if ! (cd "$GO_SOURCES/$folder" && compile "$package" "$temporary/$name" "$version") >&2; then
    rm -rf -- "$temporary"
    die "go could not build $name (its messages are above)"
  fi
  for alias in "${@:5}"; do ln "$temporary/$name" "$temporary/$alias" || die "cannot link $alias"; done
  chmod 755 "$temporary"
  mv -T -- "$temporary" "$entry" || die "cannot move $temporary to $entry"
  say "built $name in $((SECONDS - began)) s"
}

# Discovery reports the linked version; without these flags Kubernetes reports v0.0.0-master.
compile() {
  local package=./$1 output=$2 version=$3 major minor variable flags='-s -w'
  [[ $1 != *.*/* ]] || package=$1
  IFS=. read -r major minor _ <<<"${version#v}"
  for variable in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    flags+=" -X $variable.gitVersion=$version -X $variable.gitMajor=$major -X $variable.gitMinor=$minor"
  done
  CGO_ENABLED=0 GOFLAGS='-mod=readonly -buildvcs=false' \
    nice go build -trimpath -ldflags "$flags" -o "$output" "$package"
}
