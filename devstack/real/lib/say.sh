# shellcheck shell=bash
# Messages: everything people read goes to stderr; stdout is for the answer of a command.

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

die() {
  say "$*"
  exit 1
}
