# shellcheck shell=bash
# The YANG modules of IOS-XE, which are not part of the repository, and the validator for them. Needs needs.sh; the current
# folder is that of the repository.

# find_yang: exports STAFFETTA_YANG_DIR where it is not set and the modules lie beside the repository; with modules, there is
# a validator too.
find_yang() {
  local beside=../shared/iosxe/yang
  if [ -z "${STAFFETTA_YANG_DIR:-}" ] && [ -d "$beside" ]; then
    STAFFETTA_YANG_DIR=$(cd "$beside" && pwd)
  fi
  [ -n "${STAFFETTA_YANG_DIR:-}" ] || return 0
  export STAFFETTA_YANG_DIR
  need yanglint libyang2-tools
}
