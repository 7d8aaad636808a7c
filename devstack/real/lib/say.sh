# shellcheck shell=bash
# Messages go to stderr; stdout is for the result of a command.

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

die() {
  say "$*"
  exit 1
}
