# shellcheck shell=bash
# Python programs, installed once into a cache outside the tree.
# Needs say.sh and needs.sh.

PYTHON_SOURCES=$(cd "$(dirname "${BASH_SOURCE[0]}")/../python" && pwd)

# python_install FOLDER installs requirements.txt into FOLDER, in the versions of constraints.txt.
python_install() {
  local python
  need cc build-essential # one package is distributed as source
  python=$(find_python)
  "$python" -m venv "$1" >&2 || die "$python cannot make the environment $1"
  "$1/bin/pip" install --quiet --disable-pip-version-check \
    --constraint "$PYTHON_SOURCES/constraints.txt" --requirement "$PYTHON_SOURCES/requirements.txt" >&2 ||
    die 'pip could not install the services (its messages are above)'
}

# The path of a Python that can create virtual environments and compile extensions, which are separate packages in Debian.
find_python() {
  local python
  need python3
  python=$(command -v python3)
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    die "$("$python" --version) is too old: put a python3 of 3.11 or newer on the PATH"
  can_make_environments "$python" || install_part_of_python "$python" python3-venv can_make_environments
  can_compile_extensions "$python" || install_part_of_python "$python" python3-dev can_compile_extensions
  printf '%s\n' "$python"
}

install_part_of_python() {
  local python=$1 package=$2 check=$3 hint
  hint="$python lacks the files of Debian's $package"
  can_install || die "$hint: install it"
  say "installing $package"
  install_package "$package" || die "$hint, and apt-get could not install it"
  "$check" "$python" || die "$hint, and still does after apt-get installed it for another Python"
}

can_make_environments() { "$1" -c 'import ensurepip, venv' 2>/dev/null; }

can_compile_extensions() {
  "$1" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")))'
}
