# shellcheck shell=bash
# Programs that are built from Go modules, once, into a cache outside the tree.
# Needs say.sh and go.sh.

GO_SOURCES=$(cd "$(dirname "${BASH_SOURCE[0]}")/../go" && pwd)
CACHE=${STAFFETTA_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/staffetta}

# go_build FOLDER [PACKAGE [ALIAS...]] prints the path of the program that go/FOLDER/PACKAGE builds. It is named after
# PACKAGE, or else FOLDER, and lies beside its aliases. The cache entry is named by a digest of the sources and
# checksums: a new version is built anew, an entry that exists is complete. Where BUILD_NOTHING is set, an absent one is
# a failure.
go_build() {
  local folder=$1 package=${2:-.} name=$1 entry
  [ "$package" = . ] || name=$package
  entry=$CACHE/real/$name-$(module_version "$folder")-$(sources_digest "$folder")
  if [ ! -x "$entry/$name" ]; then
    [ -z "${BUILD_NOTHING:-}" ] || die "$name is not built yet"
    mkdir -p "$CACHE/real"
    (
      flock 9 # two runs at once build once
      [ -x "$entry/$name" ] || build_entry "$folder" "$package" "$entry" "$name" "${@:3}"
    ) 9>"$CACHE/real/build.lock" || return
  fi
  printf '%s\n' "$entry/$name"
}

# The requirement marked `// built here` is what a module exists to build.
module_version() {
  sed -n 's#^.* \(v[0-9.]*\) // built here$#\1#p' "$GO_SOURCES/$1/go.mod"
}

sources_digest() {
  (cd "$GO_SOURCES/$1" && find . -type f | LC_ALL=C sort | xargs cat | sha256sum | cut -c1-12)
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

# Discovery reports the version that is linked in; left alone, Kubernetes says v0.0.0-master.
compile() {
  local package=$1 output=$2 version=$3 major minor variable flags='-s -w'
  IFS=. read -r major minor _ <<<"${version#v}"
  for variable in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    flags+=" -X $variable.gitVersion=$version -X $variable.gitMajor=$major -X $variable.gitMinor=$minor"
  done
  CGO_ENABLED=0 GOFLAGS='-mod=readonly -buildvcs=false' \
    nice go build -trimpath -ldflags "$flags" -o "$output" "./$package"
}
