# shellcheck shell=bash
# Finds or installs a Go that can build the modules of go/. Needs say.sh and needs.sh.

# Installed if the machine's Go is older than 1.21; from 1.21 on, Go fetches the toolchain that a module requires.
GO_FOR_OLD_MACHINES=1.26.8

need_go() {
  need go golang-go
  fetches_toolchains || use_fetched_toolchain
}

fetches_toolchains() {
  local version
  version=$(go version | sed 's/.*go1\.\([0-9]*\).*/\1/') && [ "$version" -ge 21 ]
}

# The old Go fetches the new one as a module, which is verified with the checksum database.
use_fetched_toolchain() {
  local module folder
  module=golang.org/toolchain@v0.0.1-go$GO_FOR_OLD_MACHINES.$(go env GOOS)-$(go env GOARCH)
  say "$(go version) is too old: fetching $module"
  folder=$(cd / && go mod download -json "$module" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
  [ -n "$folder" ] || die "could not fetch it: install Go 1.21 or newer from https://go.dev/dl"
  chmod u+x "$folder"/bin/* "$folder"/pkg/tool/*/* # modules contain no file modes
  export PATH=$folder/bin:$PATH GOTOOLCHAIN=local
}
