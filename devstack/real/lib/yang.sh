# shellcheck shell=bash
# The YANG modules of IOS-XE, which are not part of the repository, and their validator. Needs needs.sh, and the repository as
# current folder.

# find_yang: exports STAFFETTA_YANG_DIR if it is not set and the modules are beside the repository; installs the validator if there
# are modules.
find_yang() {
  local beside=../shared/iosxe/yang
  if [ -z "${STAFFETTA_YANG_DIR:-}" ] && [ -d "$beside" ]; then
    STAFFETTA_YANG_DIR=$(cd "$beside" && pwd)
  fi
  [ -n "${STAFFETTA_YANG_DIR:-}" ] || return 0
  export STAFFETTA_YANG_DIR
  need yanglint libyang2-tools
}
