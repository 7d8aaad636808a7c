# shellcheck shell=bash
# Finds and starts each part of a Kubernetes control plane, and waits until it is ready.
# Needs build.sh, process.sh, certificates.sh, STATE and the ports that `up` chooses.

PKI=$STATE/pki

find_programs() {
  local sources built
  ETCD=$(asset etcd) || ETCD=$(go_build etcd)
  sources=$(kubernetes_sources)
  if ! APISERVER=$(unchosen_asset kube-apiserver) || ! CONTROLLER_MANAGER=$(unchosen_asset kube-controller-manager) ||
    ! SCHEDULER=$(unchosen_asset kube-scheduler); then
    built=$(go_build "$sources" . kube-apiserver kube-controller-manager kube-scheduler)
    built=${built%/*}
    APISERVER=$(unchosen_asset kube-apiserver) || APISERVER=$built/kube-apiserver
    CONTROLLER_MANAGER=$(unchosen_asset kube-controller-manager) || CONTROLLER_MANAGER=$built/kube-controller-manager
    SCHEDULER=$(unchosen_asset kube-scheduler) || SCHEDULER=$built/kube-scheduler
  fi
}

# The folder in go/ of the version of Kubernetes that STAFFETTA_KUBERNETES names; the newest one without it.
kubernetes_sources() {
  local newest others
  newest=$(module_version kubernetes | sed 's/^v\(.*\)\..*/\1/')
  case ${STAFFETTA_KUBERNETES:-$newest} in
    "$newest") printf 'kubernetes\n' ;;
    *[!0-9.]*) false ;;
    *) [ -d "$GO_SOURCES/kubernetes-$STAFFETTA_KUBERNETES" ] && printf 'kubernetes-%s\n' "$STAFFETTA_KUBERNETES" ;;
  esac && return
  others=$(cd "$GO_SOURCES" && printf '%s ' kubernetes-*)
  die "STAFFETTA_KUBERNETES=$STAFFETTA_KUBERNETES is no version that can be built here: choose ${others//kubernetes-/}or $newest"
}

# A program of the machine has the version that it has, so a choice of version leaves it alone.
unchosen_asset() { [ -z "${STAFFETTA_KUBERNETES:-}" ] && asset "$1"; }

asset() { [ -n "${KUBEBUILDER_ASSETS:-}" ] && [ -x "$KUBEBUILDER_ASSETS/$1" ] && printf '%s\n' "$KUBEBUILDER_ASSETS/$1"; }

api_url() { printf 'https://127.0.0.1:%s\n' "$API_PORT"; }

make_identities() {
  [ ! -e "$STATE/admin.kubeconfig" ] || return 0
  mkdir -p "$PKI"
  make_authority
  certify apiserver /CN=kube-apiserver \
    'subjectAltName=IP:127.0.0.1,IP:10.96.0.1,DNS:localhost,DNS:kubernetes.default.svc
extendedKeyUsage=serverAuth'
  certify admin /O=system:masters/CN=admin extendedKeyUsage=clientAuth
  certify controller-manager /CN=system:kube-controller-manager extendedKeyUsage=clientAuth
  certify kubelet-client /O=system:masters/CN=kube-apiserver-kubelet-client extendedKeyUsage=clientAuth
  certify scheduler /CN=system:kube-scheduler extendedKeyUsage=clientAuth
  make_signing_pair service-account
  write_kubeconfig controller-manager
  write_kubeconfig scheduler
  write_kubeconfig admin # last, because its existence means that all files are complete
}

write_kubeconfig() {
  cat >"$STATE/$1.kubeconfig" <<YAML
apiVersion: v1
kind: Config
current-context: staffetta
contexts:
- name: staffetta
  context: {cluster: staffetta, user: $1}
clusters:
- name: staffetta
  cluster:
    server: $(api_url)
    certificate-authority-data: $(base64 -w0 "$PKI/ca.crt")
users:
- name: $1
  user:
    client-certificate-data: $(base64 -w0 "$PKI/$1.crt")
    client-key-data: $(base64 -w0 "$PKI/$1.key")
YAML
}

start_etcd() {
  local client=http://127.0.0.1:$ETCD_PORT peer=http://127.0.0.1:$ETCD_PEER_PORT flags=()
  # No fsync: the data need not survive a crash of the machine.
  if offers "$ETCD" --unsafe-no-fsync; then flags+=(--unsafe-no-fsync); fi
  launch etcd "$ETCD" --name=default --data-dir="$STATE/etcd" --quota-backend-bytes=4294967296 \
    --listen-client-urls="$client" --advertise-client-urls="$client" --listen-peer-urls="$peer" \
    --initial-advertise-peer-urls="$peer" --initial-cluster="default=$peer" "${flags[@]}"
  wait_until etcd healthy call "$client/health"
}

# Compacts etcd at the present revision, over its JSON API; keys are in base64 there, and AA== is the first.
compact_etcd() {
  local etcd=http://127.0.0.1:$ETCD_PORT/v3/kv revision
  revision=$(call "$etcd/range" -d '{"key":"AA=="}' | sed -n 's/.*"revision":"\([0-9]*\)".*/\1/p')
  [ -n "$revision" ] || die 'etcd does not say its revision'
  call "$etcd/compaction" -d "{\"revision\":\"$revision\",\"physical\":true}" >/dev/null ||
    die "etcd could not be compacted at revision $revision"
}

# Audits each request of a service account with the rule that permits it, as a line in audit.log beside the administrator's
# kubeconfig. Requests with a client certificate are not audited.
write_audit_policy() {
  cat >"$STATE/audit-policy.yaml" <<'YAML'
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, userGroups: ['system:serviceaccounts:kube-system']} # the controller manager's own
- {level: Metadata, userGroups: ['system:serviceaccounts']}
YAML
}

start_apiserver() {
  write_audit_policy
  launch apiserver "$APISERVER" --etcd-servers="http://127.0.0.1:$ETCD_PORT" \
    --bind-address=127.0.0.1 --advertise-address=127.0.0.1 --secure-port="$API_PORT" \
    --tls-cert-file="$PKI/apiserver.crt" --tls-private-key-file="$PKI/apiserver.key" --client-ca-file="$PKI/ca.crt" \
    --kubelet-client-certificate="$PKI/kubelet-client.crt" --kubelet-client-key="$PKI/kubelet-client.key" \
    --requestheader-client-ca-file="$PKI/ca.crt" --requestheader-allowed-names=front-proxy-client \
    --requestheader-username-headers=X-Remote-User --authorization-mode=RBAC --allow-privileged=true \
    --service-cluster-ip-range=10.96.0.0/16 --endpoint-reconciler-type=none \
    --service-account-issuer=https://kubernetes.default.svc \
    --service-account-key-file="$PKI/service-account.pub" \
    --service-account-signing-key-file="$PKI/service-account.key" \
    --audit-policy-file="$STATE/audit-policy.yaml" --audit-log-path="$STATE/audit.log" "$@"
  wait_until apiserver ready call_as_admin "$(api_url)/readyz"
  # A server can report readiness and still fail each write.
  wait_until apiserver 'able to create an object' create_object
}

create_object() {
  local collection
  collection=$(api_url)/api/v1/namespaces/default/configmaps
  call_as_admin -X DELETE "$collection/ready" || true # of an earlier attempt whose response was lost
  call_as_admin -H 'Content-Type: application/json' "$collection" \
    -d '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"ready"}}' &&
    call_as_admin -X DELETE "$collection/ready"
}

start_controller_manager() {
  local flags
  component_flags "$CONTROLLER_MANAGER" controller-manager "$CONTROLLER_MANAGER_PORT"
  launch controller-manager "$CONTROLLER_MANAGER" "${flags[@]}" --use-service-account-credentials=true \
    --root-ca-file="$PKI/ca.crt" --service-account-private-key-file="$PKI/service-account.key" \
    --cluster-signing-cert-file="$PKI/ca.crt" --cluster-signing-key-file="$PKI/ca.key"
  wait_until controller-manager 'making service accounts' \
    call_as_admin "$(api_url)/api/v1/namespaces/default/serviceaccounts/default"
}

start_scheduler() {
  local flags
  component_flags "$SCHEDULER" scheduler "$SCHEDULER_PORT"
  launch scheduler "$SCHEDULER" "${flags[@]}"
  wait_until scheduler healthy call --insecure "https://127.0.0.1:$SCHEDULER_PORT/healthz"
}

# component_flags PROGRAM NAME PORT sets `flags` to the options that all clients of the API server share.
component_flags() {
  local kubeconfig=$STATE/$2.kubeconfig
  flags=(--kubeconfig="$kubeconfig" --authentication-kubeconfig="$kubeconfig"
    --authorization-kubeconfig="$kubeconfig" --bind-address=127.0.0.1 --secure-port="$3"
    --cert-dir="$PKI/$2" --leader-elect=false)
  # Before 1.24 there is a second listener, and not on loopback.
  if offers "$1" --port; then flags+=(--port=0); fi
}

offers() { grep -q -- "^ *$2[ =]" <<<"$("$1" --help 2>&1)"; }

call() { curl --silent --fail --max-time 5 --noproxy '*' "$@"; }

call_as_admin() { call --cacert "$PKI/ca.crt" --cert "$PKI/admin.crt" --key "$PKI/admin.key" "$@"; }
