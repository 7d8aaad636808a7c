# shellcheck shell=bash
# Builds kubectl if the machine has none. Needs build.sh.

put_kubectl_on_path() {
  local built
  [ -z "${KUBEBUILDER_ASSETS:-}" ] || PATH=$PATH:$KUBEBUILDER_ASSETS
  command -v kubectl >/dev/null && return
  built=$(go_build kubernetes kubectl)
  export PATH=$PATH:${built%/*}
}
