# shellcheck shell=bash
# The parts of a service: programs that outlive the script that starts them.
# Needs say.sh, and SERVICE, its name. Sets STATE, its private folder:
#   run/PART.pid, run/PART.command   its process and command; the command shows that the process id was not reused
#   log/PART.log                     its output
#   ports                            chosen once, so that a restarted part has the same port

# Several services (or copies of one) run side by side when STAFFETTA_REAL_STATE differs.
STATE=${STAFFETTA_REAL_STATE:-${TMPDIR:-/tmp}/staffetta-real-$(id -u)}/$SERVICE

open_state() {
  umask 077
  mkdir -p "$STATE/run" "$STATE/log"
  [ -O "$STATE" ] || die "$STATE belongs to another user; set STAFFETTA_REAL_STATE to a folder of your own"
}

# choose_ports NAME... sets each variable NAME to a free port, the same one at each call on this state.
choose_ports() {
  local name
  unset "$@" # ignore variables of these names in the environment
  # shellcheck source=/dev/null
  [ ! -e "$STATE/ports" ] || . "$STATE/ports"
  for name in "$@"; do
    [ -n "${!name:-}" ] && continue
    printf -v "$name" %s "$(free_port)"
    printf '%s=%s\n' "$name" "${!name}" >>"$STATE/ports"
  done
}

# Below the range of ephemeral ports, so that a port stays free while its part is stopped.
free_port() {
  local port
  while port=$((10000 + (RANDOM << 15 | RANDOM) % 20000)); do
    grep -qs "=$port\$" "$STATE/ports" || listening "$port" || break
  done
  printf '%s\n' "$port"
}

listening() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

running() {
  local pid
  pid=$(cat "$STATE/run/$1.pid" 2>/dev/null) || return 1 # in a trap, a bare `return` gives the status from before it
  # Through a pipe, because cmp compares file sizes, which are 0 under /proc.
  cmp -s <(cat "/proc/$pid/cmdline" 2>/dev/null) "$STATE/run/$1.command"
}

# launch PART COMMAND... starts it in its own session, unless it is running.
launch() {
  local part=$1
  shift
  running "$part" && return
  printf '%s\0' "$@" >"$STATE/run/$part.command"
  setsid "$@" >>"$STATE/log/$part.log" 2>&1 </dev/null &
  printf '%s\n' $! >"$STATE/run/$part.pid"
  LAUNCHED+=("$part")
}

# wait_until PART STATE-OF-THINGS COMMAND... polls until COMMAND succeeds; fails if PART ends before.
wait_until() {
  local part=$1 what=$2 deadline=$((SECONDS + ${STAFFETTA_REAL_TIMEOUT:-120}))
  shift 2
  until "$@" >/dev/null 2>&1; do
    alive "$(cat "$STATE/run/$part.pid")" || die "$part ended before it was $what"
    [ "$SECONDS" -lt "$deadline" ] || die "$part is not $what in time"
    sleep 0.1
  done
}

# Unlike `running`, also true between fork and exec, and until the files of the process are closed.
alive() { grep -q '^State:[[:space:]]*[^ZX]' "/proc/$1/status" 2>/dev/null; }

# stop PART ends it, with SIGKILL after ten seconds, and returns when it has ended.
stop() {
  local part=$1 pid attempt
  if running "$part"; then
    pid=$(cat "$STATE/run/$part.pid")
    kill -TERM "$pid" 2>/dev/null || true # it may have ended just now
    for attempt in {1..100}; do
      alive "$pid" || break
      [ "$attempt" -lt 100 ] || kill -KILL "$pid" 2>/dev/null || true
      sleep 0.1
    done
  fi
  rm -f -- "$STATE/run/$part.pid" "$STATE/run/$part.command"
}

# A script that fails or is interrupted from here on ends the parts that it launched.
undo_launches_on_failure() {
  LAUNCHED=()
  trap undo_launches EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
}

undo_launches() {
  local status=$? part
  [ "$status" -ne 0 ] || return 0
  for part in "${LAUNCHED[@]}"; do
    say "the end of $STATE/log/$part.log:"
    tail -n 5 "$STATE/log/$part.log" >&2
  done
  while [ ${#LAUNCHED[@]} -gt 0 ]; do
    stop "${LAUNCHED[-1]}"
    unset 'LAUNCHED[-1]'
  done
}
