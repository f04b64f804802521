#!/bin/sh
# Sets up what kvbench needs, and changes nothing that is already there.
#   setup.sh venv DIR   a virtual environment with a Python of 3.11 or later
#   setup.sh fio        fio from the system's package manager (root), else the exact command and exit 1
#   setup.sh driver     prints the driver to measure with: fio where it can be had, else replay
set -eu

say() { printf 'kvbench setup: %s\n' "$*" >&2; }

install_command() {
    # $1: Debian package, $2: Fedora package
    if command -v apt-get >/dev/null 2>&1; then
        echo "apt-get update && apt-get install -y --no-install-recommends $1"
    elif command -v dnf >/dev/null 2>&1; then
        echo "dnf install -y $2"
    else
        echo "your package manager, package $1"
    fi
}

install_package() {
    # Installs as root; otherwise says what to type and fails.
    command=$(install_command "$1" "$2")
    if [ "$(id -u)" -ne 0 ] || [ "${command#your}" != "$command" ]; then
        say "$1 is missing. Install it, then run make again:"
        say "    sudo sh -c '$command'"
        return 1
    fi
    say "installing $1 ($command)"
    DEBIAN_FRONTEND=noninteractive sh -c "$command" >&2
}

find_python() {
    for candidate in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return 0
        fi
    done
    return 1
}

make_venv() {
    [ -x "$1/bin/python" ] && "$1/bin/python" -m pip --version >/dev/null 2>&1 && return 0
    if ! python=$(find_python); then
        install_package python3 python3.12
        python=$(find_python) || { say "no Python 3.11 or later found; set PYTHON=/path/to/python3"; return 1; }
    fi
    "$python" -c 'import ensurepip, venv' 2>/dev/null || install_package python3-venv python3-pip
    "$python" -m venv "$1"
}

get_fio() {
    command -v fio >/dev/null 2>&1 && return 0
    install_package fio fio
    command -v fio >/dev/null 2>&1
}

choose_driver() {
    if get_fio; then
        echo fio
    else
        say "fio cannot be installed here. Measuring without it: --driver replay does the connector's own file calls."
        echo replay
    fi
}

case "${1:-}" in
    venv) make_venv "$2" ;;
    fio) get_fio ;;
    driver) choose_driver ;;
    *) say "usage: setup.sh venv DIR | setup.sh fio | setup.sh driver"; exit 2 ;;
esac
