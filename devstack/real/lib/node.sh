# shellcheck shell=bash
# Starts each part of a node, and removes what they leave. Needs process.sh, STATE, KUBELET and the ports that `up` chooses.

REFERENCE_PLUGINS=/usr/lib/cni # where Debian has them
IMAGE=docker.io/local/busybox:1

start_open_vswitch() {
  local ovs=$STATE/ovs
  mkdir -p "$ovs"
  export OVS_RUNDIR=$ovs OVS_DBDIR=$ovs OVS_LOGDIR=$ovs
  [ -e "$ovs/conf.db" ] || ovsdb-tool create "$ovs/conf.db" /usr/share/openvswitch/vswitch.ovsschema
  launch ovsdb ovsdb-server "$ovs/conf.db" --remote="punix:$ovs/db.sock"
  wait_until ovsdb listening test -S "$ovs/db.sock"
  vsctl --no-wait init
  launch vswitchd ovs-vswitchd "unix:$ovs/db.sock"
  # The datapath in userspace needs no module of the kernel.
  vsctl --may-exist add-br br-int -- set bridge br-int datapath_type=netdev
}

vsctl() { ovs-vsctl --db="unix:$STATE/ovs/db.sock" "$@"; }

start_containerd() {
  mkdir -p "$STATE/bin" "$STATE/net.d"
  # The runtime itself uses `loopback`.
  ln -sf "$REFERENCE_PLUGINS"/* "$STATE/bin/"
  # OOM scores below that of this shell, which a container in a container must not set; `native`, because some disks refuse overlay.
  cat >"$STATE/containerd.toml" <<TOML
version = 2
root = "$STATE/containerd/root"
state = "$STATE/containerd/state"
[grpc]
  address = "$STATE/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  sandbox_image = "$IMAGE"
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$STATE/bin"
    conf_dir = "$STATE/net.d"
TOML
  launch containerd containerd --config "$STATE/containerd.toml"
  wait_until containerd ready containers version
}

containers() { ctr --address "$STATE/containerd.sock" --namespace k8s.io "$@"; }

# Makes an image of the machine's busybox, in the layout of the OCI, and imports it.
import_busybox() {
  [ -z "$(containers images list --quiet "name==$IMAGE")" ] || return 0
  local image=$STATE/image layer config manifest platform='"architecture":"amd64","os":"linux"'
  [ "$(uname -m)" != aarch64 ] || platform='"architecture":"arm64","os":"linux"'
  rm -rf "$image"
  mkdir -p "$image/blobs/sha256" "$STATE/rootfs/bin"
  cp "$(command -v busybox)" "$STATE/rootfs/bin/busybox"
  for layer in sh sleep; do ln -sf busybox "$STATE/rootfs/bin/$layer"; done
  layer=$(tar --create --directory="$STATE/rootfs" . | blob)
  config=$(printf '{%s,"config":{"Cmd":["/bin/sleep","1000000"]},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' \
    "$platform" "$layer" | blob)
  manifest=$(printf '{"schemaVersion":2,"mediaType":"%s","config":%s,"layers":[%s]}' \
    application/vnd.oci.image.manifest.v1+json "$(described application/vnd.oci.image.config.v1+json "$config")" \
    "$(described application/vnd.oci.image.layer.v1.tar "$layer")" | blob)
  printf '{"imageLayoutVersion":"1.0.0"}' >"$image/oci-layout"
  printf '{"schemaVersion":2,"manifests":[%s,"annotations":{"io.containerd.image.name":"%s"}}]}' \
    "$(described application/vnd.oci.image.manifest.v1+json "$manifest" | sed 's/}$//')" "$IMAGE" >"$image/index.json"
  tar --create --file="$image.tar" --directory="$image" .
  containers images import --snapshotter native "$image.tar" >&2
}

# blob stores its input in the image and prints its digest.
blob() {
  local file=$STATE/image/blob digest
  cat >"$file"
  digest=$(sha256sum "$file" | cut -d ' ' -f 1)
  mv "$file" "$STATE/image/blobs/sha256/$digest"
  printf '%s\n' "$digest"
}

# described MEDIA-TYPE DIGEST prints the descriptor of a blob.
described() {
  printf '{"mediaType":"%s","digest":"sha256:%s","size":%d}' "$1" "$2" "$(stat --format=%s "$STATE/image/blobs/sha256/$2")"
}

start_kubelet() {
  mkdir -p "$STATE/kubelet" "$STATE/pod-logs"
  # Without the features of the kernel that a container in a container may lack. The API server reaches it as `localhost`.
  cat >"$STATE/kubelet.yaml" <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failSwapOn: false
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
localStorageCapacityIsolation: false
containerRuntimeEndpoint: unix://$STATE/containerd.sock
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
address: 127.0.0.1
port: $KUBELET_PORT
healthzPort: $KUBELET_HEALTH_PORT
readOnlyPort: 0
resolvConf: ""
podLogsDir: $STATE/pod-logs
volumePluginDir: $STATE/kubelet/plugins
YAML
  launch kubelet "$KUBELET" --config="$STATE/kubelet.yaml" --kubeconfig="$1" --hostname-override=localhost \
    --root-dir="$STATE/kubelet"
  wait_until kubelet healthy curl --silent --fail --noproxy '*' "http://127.0.0.1:$KUBELET_HEALTH_PORT/healthz"
}

# Ends Open vSwitch with the interfaces that it created, which would outlive it.
remove_interfaces() {
  ovs-appctl --target="$STATE/ovs/ovs-vswitchd.$(cat "$STATE/run/vswitchd.pid").ctl" exit --cleanup || true
}

# Kills all containers, and waits until containerd has deleted them, so that no process of it is left.
end_containers() {
  local task attempt
  for attempt in {1..50}; do
    [ -n "$(containers tasks list --quiet)" ] || return 0
    for task in $(containers tasks list --quiet); do
      containers tasks kill --signal SIGKILL "$task" 2>/dev/null || true # it may have ended just now
    done
    sleep 0.1
  done
  say 'some containers do not end'
}

wipe() {
  local mounted
  # The innermost ones first.
  for mounted in $(awk -v under="$STATE/" 'index($2, under) == 1 { print $2 }' /proc/self/mounts | sort --reverse); do
    umount --lazy "$mounted"
  done
  rm -rf -- "$STATE"
}
