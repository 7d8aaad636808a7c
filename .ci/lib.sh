# shellcheck shell=bash
# Runs tests only if what they test has changed since their last pass on this machine. Needs NAME, in words, and a function `tests`.
# A pass leaves a digest of what was tested, as far as git tracks it, in STAFFETTA_CACHE (default: ~/.cache/staffetta).

# if_needed ARGUMENT RECORD PATH... runs `tests` if a PATH has changed since RECORD was written. If ARGUMENT is --needed, it only prints
# `yes` or `no`.
if_needed() {
  local argument=$1 record=${STAFFETTA_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/staffetta}/$2 now needed=yes
  shift 2
  git ls-files --error-unmatch -- "$@" >/dev/null # a path that is gone would never count as changed
  now=$({ git ls-tree -r HEAD -- "$@" && git diff HEAD -- "$@"; } | sha256sum | cut -d ' ' -f 1)
  [ "$now" != "$(cat -- "$record" 2>/dev/null)" ] || needed=no
  if [ "$argument" = --needed ]; then
    printf '%s\n' "$needed"
  elif [ "$needed" = no ]; then
    printf 'what the tests on %s test is as in their last pass\n' "$NAME"
  else
    tests
    mkdir -p -- "${record%/*}"
    printf '%s\n' "$now" >"$record"
  fi
}
