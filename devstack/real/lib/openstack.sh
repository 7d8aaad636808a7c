# shellcheck shell=bash
# Configures and starts each service of an OpenStack, and waits until it is ready.
# Needs build.sh, python.sh, mariadb.sh, process.sh, STATE and the ports that `up` chooses.

# The passwords of the service user, the administrator and the users of tests. They protect nothing: all services listen on
# loopback, for the duration of a test.
PASSWORD=staffetta
DATABASES=(keystone neutron octavia)

# find_services sets SERVICES, the cache entry with all programs and the empty databases. Its name contains a digest of
# its sources, and a marker file shows that it is complete.
find_services() {
  local version
  version=$(sed -n 's/^neutron==//p' "$PYTHON_SOURCES/requirements.txt")
  SERVICES=$CACHE/real/openstack-$version-$(requirements_digest)
  VENV=$SERVICES/venv
  find_mariadb "$SERVICES/mariadb"
  [ ! -e "$SERVICES/complete" ] || return 0
  [ -z "${BUILD_NOTHING:-}" ] || die 'the services are not installed yet'
  mkdir -p "$CACHE/real"
  (
    flock 9 # concurrent runs install once
    [ -e "$SERVICES/complete" ] || install_services
  ) 9>"$CACHE/real/openstack.lock"
}

requirements_digest() {
  cat "$PYTHON_SOURCES"/{requirements,constraints}.txt "$LIBRARY/mariadb.sh" | sha256sum | cut -c1-12
}

install_services() {
  local began=$SECONDS
  say "installing Keystone, Neutron and Octavia once into $SERVICES (this takes minutes)"
  rm -rf -- "$SERVICES" # left by an interrupted run
  mkdir -p "$SERVICES"
  unpack_mariadb
  python_install "$VENV"
  make_schema
  touch "$SERVICES/complete"
  say "installed in $((SECONDS - began)) s"
}

# The migrated databases, as a folder that is copied for each new state.
make_schema() (
  STATE=$(mktemp -d)
  trap 'stop database; rm -rf -- "$STATE"' EXIT
  open_state
  make_databases "$STATE/database" "${DATABASES[@]}"
  start_mariadb "$STATE/database" "$STATE/socket"
  write_configurations
  migrate keystone-manage keystone db_sync
  migrate neutron-db-manage neutron upgrade heads
  migrate octavia-db-manage octavia upgrade head
  stop database
  rm -f -- "$STATE/database/"*.pid
  mv -- "$STATE/database" "$SERVICES/database"
)

migrate() {
  local program=$1 service=$2
  shift 2
  "$VENV/bin/$program" --config-file "$STATE/$service/$service.conf" "$@" >"$STATE/log/migrate.log" 2>&1 || {
    tail -n 20 "$STATE/log/migrate.log" >&2
    die "$program could not make its tables"
  }
}

database_url() { printf 'mysql+pymysql://root@localhost/%s?unix_socket=%s\n' "$1" "$STATE/socket"; }

keystone_url() { printf 'http://127.0.0.1:%s/v3\n' "${KEYSTONE_PORT:-0}"; }
neutron_url() { printf 'http://127.0.0.1:%s\n' "${NEUTRON_PORT:-0}"; }
octavia_url() { printf 'http://127.0.0.1:%s\n' "${OCTAVIA_PORT:-0}"; }

write_configurations() {
  mkdir -p "$STATE"/{keystone/{fernet,credential},neutron,octavia,temporary}
  write_keystone_configuration >"$STATE/keystone/keystone.conf"
  write_neutron_configuration >"$STATE/neutron/neutron.conf"
  write_octavia_configuration >"$STATE/octavia/octavia.conf"
}

write_keystone_configuration() {
  cat <<INI
[database]
connection = $(database_url keystone)
[token]
expiration = ${TOKEN_LIFE:-3600}
# Its single process caches tokens, because the other services validate the same few with each request. It drops changed or
# revoked ones from the cache at once.
[cache]
enabled = true
backend = dogpile.cache.memory
[identity]
# The least permitted value: tests create users.
password_hash_rounds = 4
[fernet_tokens]
key_repository = $STATE/keystone/fernet
[fernet_receipts]
key_repository = $STATE/keystone/fernet
[credential]
key_repository = $STATE/keystone/credential
INI
}

# Services validate tokens without a cache, so that they notice a revocation at once.
write_token_options() {
  cat <<INI
[keystone_authtoken]
www_authenticate_uri = $(keystone_url)
auth_url = $(keystone_url)
auth_type = password
username = services
password = $PASSWORD
project_name = services
user_domain_id = default
project_domain_id = default
token_cache_time = -1
INI
}

# No message bus: its only listener would be the stand-in for the agents, which runs in the same process.
write_neutron_configuration() {
  cat <<INI
[DEFAULT]
auth_strategy = keystone
transport_url = fake://
core_plugin = ml2
service_plugins = trunk,tag,qos,router,revisions,timestamp,segments
api_paste_config = $VENV/etc/neutron/api-paste.ini
state_path = $STATE/neutron
# No agent sends heartbeats; this is the longest interval that is accepted, 23 days.
agent_down_time = 2000000
rpc_workers = 0
rpc_state_report_workers = 0
notify_nova_on_port_status_changes = false
notify_nova_on_port_data_changes = false
[database]
connection = $(database_url neutron)
max_retries = -1
[oslo_concurrency]
lock_path = $STATE/neutron/lock
[oslo_messaging_notifications]
driver = noop
[quotas]
quota_network = 1000
quota_subnet = 1000
quota_port = 10000
quota_router = 1000
quota_security_group = 1000
quota_security_group_rule = 10000
quota_trunk = 1000
[ml2]
mechanism_drivers = openvswitch
type_drivers = local,vlan,vxlan,flat
tenant_network_types = local
extension_drivers = port_security,qos,tag_ports_during_bulk_creation
$(write_token_options)
INI
}

# Its worker is a thread of its API, with no-op drivers for amphorae, networks and images.
write_octavia_configuration() {
  cat <<INI
[DEFAULT]
transport_url = fake://
[api_settings]
auth_strategy = keystone
enabled_provider_drivers = amphora:amphora,noop_driver:noop
default_provider_driver = amphora
[database]
connection = $(database_url octavia)
[oslo_messaging]
topic = octavia_prov
[quotas]
default_load_balancer_quota = 1000
default_listener_quota = 10000
default_pool_quota = 10000
default_member_quota = 100000
default_health_monitor_quota = 10000
[controller_worker]
amphora_driver = amphora_noop_driver
compute_driver = compute_noop_driver
network_driver = network_noop_driver
image_driver = image_noop_driver
volume_driver = volume_noop_driver
client_ca = $STATE/octavia/ca.crt
amp_flavor_id = 1
amp_image_tag = amphora
amp_boot_network_list = 00000000-0000-0000-0000-000000000000
[certificates]
ca_certificate = $STATE/octavia/ca.crt
ca_private_key = $STATE/octavia/ca.key
cert_manager = local_cert_manager
$(write_token_options)
INI
}

start_database() {
  [ -d "$STATE/database" ] || cp -R -- "$SERVICES/database" "$STATE/database"
  start_mariadb "$STATE/database" "$STATE/socket"
}

# Creates keys, the administrator and the first entry of the catalogue, once for each state.
make_identity() {
  local key
  [ ! -e "$STATE/keystone/bootstrapped" ] || return 0
  for key in fernet/0 fernet/1 credential/0 credential/1; do new_key >"$STATE/keystone/$key"; done
  openssl req -x509 -newkey rsa:2048 -nodes -days 365 -subj '/CN=staffetta test authority' \
    -keyout "$STATE/octavia/ca.key" -out "$STATE/octavia/ca.crt" 2>/dev/null || die 'openssl could not make an authority'
  "$VENV/bin/keystone-manage" --config-file "$STATE/keystone/keystone.conf" bootstrap --bootstrap-password "$PASSWORD" \
    --bootstrap-region-id RegionOne --bootstrap-{admin,public,internal}-url="$(keystone_url)" \
    >"$STATE/log/bootstrap.log" 2>&1 || die "Keystone has no administrator: see $STATE/log/bootstrap.log"
  touch "$STATE/keystone/bootstrapped"
}

# 32 random bytes in the form of a Fernet key.
new_key() { head -c 32 /dev/urandom | base64 -w0 | tr +/ -_; }

start_keystone() { OS_KEYSTONE_CONFIG_DIR=$STATE/keystone serve keystone "$KEYSTONE_PORT" 1; }

start_neutron() {
  OS_NEUTRON_CONFIG_DIR=$STATE/neutron OS_NEUTRON_CONFIG_FILES=neutron.conf serve neutron "$NEUTRON_PORT" "${WORKERS:-2}"
}

# One process, because the worker is a thread of the API.
start_octavia() { OCTAVIA_CONF=$STATE/octavia/octavia.conf serve octavia "$OCTAVIA_PORT" 1; }

# serve PART PORT WORKERS starts python/serve_PART.py. Neutron names files in the temporary folder by the id of its parent process.
serve() {
  local part=$1 port=$2 workers=$3
  TMPDIR=$STATE/temporary PYTHONPATH=$PYTHON_SOURCES STAFFETTA_REQUESTS=$STATE/$part/requests \
    PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 \
    launch "$part" "$VENV/bin/uwsgi" --module "serve_$part:application" --http-socket "127.0.0.1:$port" \
    --master --no-orphans --lazy-apps --need-app --enable-threads --die-on-term --worker-reload-mercy 1 \
    --processes "$workers" --listen 100 --buffer-size 65535 --disable-logging --add-header 'Connection: close'
}

wait_for() { wait_until "$1" answering call "http://127.0.0.1:$2$3"; }

call() { curl --silent --fail --max-time 5 --noproxy '*' --output /dev/null "$@"; }

# Creates projects, users, networks and the catalogue, once for each state.
seed() {
  [ ! -e "$STATE/seed" ] || return 0
  "$VENV/bin/python" "$PYTHON_SOURCES/seed.py" "$(keystone_url)" "$(neutron_url)" "$(octavia_url)" "$PASSWORD" \
    >"$STATE/seed.new" || die 'the projects and networks could not be made (the reason is above); begin anew with down --wipe'
  mv -- "$STATE/seed.new" "$STATE/seed"
}

# clouds.yaml with the controller's user and the administrator, in the usual form.
write_clouds() {
  local cloud user project
  printf 'clouds:\n'
  for cloud in staffetta:controller:kubernetes admin:admin:admin; do
    IFS=: read -r cloud user project <<<"$cloud"
    cat <<YAML
  $cloud:
    region_name: RegionOne
    interface: public
    auth:
      auth_url: $(keystone_url)
      username: $user
      password: $PASSWORD
      project_name: $project
      user_domain_id: default
      project_domain_id: default
YAML
  done
}
