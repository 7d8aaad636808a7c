# shellcheck shell=bash
# A MariaDB for one service: a private data folder, a Unix socket, no network, no passwords.
# Needs say.sh, needs.sh and process.sh.

# find_mariadb FOLDER sets MARIADBD and MARIADB_ROOT, the root of its installation. If there is none on the
# PATH, the Debian packages are unpacked into FOLDER without installing them.
find_mariadb() {
  if MARIADBD=$(command -v mariadbd || PATH=/usr/sbin command -v mariadbd); then
    MARIADB_ROOT=$(realpath "$MARIADBD")
    MARIADB_ROOT=${MARIADB_ROOT%/*/*/*}
  else
    MARIADB_ROOT=$1
    MARIADBD=$MARIADB_ROOT/usr/sbin/mariadbd
  fi
  MARIADB_LIBRARIES=$MARIADB_ROOT/usr/lib/$(uname -m)-linux-gnu:$MARIADB_ROOT/lib/$(uname -m)-linux-gnu
}

# unpack_mariadb unpacks the packages where find_mariadb looks for them.
unpack_mariadb() {
  local packages
  [ ! -x "$MARIADBD" ] || return 0
  command -v apt-get dpkg >/dev/null || die 'mariadbd is missing: install MariaDB 10.6 or newer (on Debian: mariadb-server-core)'
  say 'unpacking mariadb-server-core'
  packages=$(mktemp -d)
  if ! (cd "$packages" && fetch_packages >&2); then
    rm -rf -- "$packages"
    die 'apt-get could not fetch mariadb-server-core: install it, or put a mariadbd on the PATH'
  fi
  mkdir -p "$MARIADB_ROOT"
  for package in "$packages"/*.deb; do dpkg -x "$package" "$MARIADB_ROOT" || die "$package cannot be unpacked"; done
  rm -rf -- "$packages"
  LD_LIBRARY_PATH=$MARIADB_LIBRARIES "$MARIADBD" --version >&2 || die "$MARIADBD does not run"
}

# The server, and two libraries that a bare machine lacks.
fetch_packages() {
  apt-get -qq -o APT::Sandbox::User=root download mariadb-server-core liburing2 libaio1 && return
  ! can_install || apt-get -qq update # a bare image comes without package lists
  apt-get -qq -o APT::Sandbox::User=root download mariadb-server-core liburing2 libaio1 && return
  apt-get -qq -o APT::Sandbox::User=root download mariadb-server-core liburing2 libaio1t64 # its name in later releases
}

# The folder with the server's own messages and first tables differs between packagers.
mariadb_share() {
  local share
  for share in "$MARIADB_ROOT"/usr/share/{mysql,mariadb} "$MARIADB_ROOT"/share/{mysql,mariadb}; do
    [ ! -e "$share/mysql_system_tables.sql" ] || break
  done
  [ -e "$share/mysql_system_tables.sql" ] || die "$MARIADBD comes without mysql_system_tables.sql"
  printf '%s\n' "$share"
}

# mariadb_flags DATA fills `flags`. The data need not survive a crash of the machine.
mariadb_flags() {
  local share
  share=$(mariadb_share)
  flags=(--no-defaults --basedir="$MARIADB_ROOT/usr" --datadir="$1" --tmpdir="$1" --lc-messages-dir="$share/english"
    --character-sets-dir="$share/charsets" --plugin-dir="$MARIADB_ROOT/usr/lib/mysql/plugin" --skip-grant-tables
    --skip-networking --innodb-log-file-size=8M --innodb-buffer-pool-size=64M --innodb-flush-log-at-trx-commit=0
    --innodb-doublewrite=0 --performance-schema=off --max-connections=300)
  [ "$(id -u)" != 0 ] || flags+=(--user=root)
}

# make_databases DATA NAME... creates the folder DATA with the system tables and an empty database for each NAME.
make_databases() {
  local data=$1 name share flags
  shift
  share=$(mariadb_share)
  mariadb_flags "$data"
  mkdir -p "$data"
  {
    printf 'create database mysql;\nuse mysql;\n'
    cat "$share/mysql_system_tables.sql" "$share/mysql_system_tables_data.sql"
    for name in "$@"; do printf 'create database %s character set utf8mb3;\n' "$name"; done
  } | LD_LIBRARY_PATH=$MARIADB_LIBRARIES "$MARIADBD" "${flags[@]}" --bootstrap >"$data.log" 2>&1 || {
    tail -n 20 "$data.log" >&2
    die 'MariaDB could not make its databases (its messages are above)'
  }
}

# start_mariadb DATA SOCKET
start_mariadb() {
  local flags
  mariadb_flags "$1"
  LD_LIBRARY_PATH=$MARIADB_LIBRARIES launch database "$MARIADBD" "${flags[@]}" --socket="$2"
  wait_until database listening test -S "$2"
}
