# shellcheck shell=bash
# Programs that a bare machine may lack. Needs say.sh.

# need PROGRAM [DEBIAN-PACKAGE]: installs a missing program with apt-get if that is permitted; otherwise fails with a message.
need() {
  local program=$1 package=${2:-$1}
  command -v "$program" >/dev/null && return
  can_install || die "$program is missing: install it (on Debian: apt-get install $package)"
  say "installing $package"
  install_package "$package" || die "$program is missing and apt-get could not install $package"
  command -v "$program" >/dev/null || die "apt-get installed $package, and there is still no $program on PATH"
}

can_install() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

install_package() {
  local quietly=(env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0)
  "${quietly[@]}" install -y --no-install-recommends "$1" >&2 </dev/null && return
  "${quietly[@]}" update >&2 </dev/null # a bare image comes without package lists
  "${quietly[@]}" install -y --no-install-recommends "$1" >&2 </dev/null
}
