#!/usr/bin/env bash
# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0

# The Debian and Ubuntu packages of the project, in one place.
#
#   bash cmake/packages.sh list GROUP...      prints them
#   bash cmake/packages.sh install GROUP...   installs what is missing (as root, or through sudo)
#   bash cmake/packages.sh upgrade GROUP...   brings those that are installed, and the kernel's headers, to the version
#                                             that a new machine gets
#
# Groups: build     to build and test everything but the GPU part
#         ci        further compilers and tools of the full check
#         services  servers, launchers and tools that some tests use when they are there; a missing one is said, not an
#                   error

set -euo pipefail

build=(g++ cmake ninja-build pkg-config python3 catch2 liburing-dev libcurl4-openssl-dev libssl-dev libexpat1-dev
  libarchive-dev zlib1g-dev libzstd-dev libjpeg-dev libspng-dev libwebp-dev libsndfile1-dev libsoxr-dev
  libsimdjson-dev libdlpack-dev libcli11-dev nlohmann-json3-dev libsentencepiece-dev libavformat-dev libavcodec-dev
  libswscale-dev libavutil-dev)
ci=(clang-16 libclang-rt-16-dev llvm-16 libc++-16-dev libc++abi-16-dev ccache git debootstrap)
services=(openmpi-bin libopenmpi-dev libpmix-dev slurmctld slurmd slurm-client radosgw ceph-mon ceph-osd ceph-common
  python3-boto3 python3-pil python3-numpy python3-pip python3-torch libtorch-dev libopencv-core-dev
  libopencv-imgproc-dev ffmpeg curl nginx-light debhelper dpkg-dev lintian python3-markdown python3-venv python3-dev)

names() {
  local group
  for group in "$@"; do
    case $group in
      build) printf '%s\n' "${build[@]}" ;;
      ci) printf '%s\n' "${ci[@]}" ;;
      services) printf '%s\n' "${services[@]}" ;;
      *) echo "packages.sh: no group '$group'" >&2; return 2 ;;
    esac
  done
}

missing() {
  local name
  for name in "$@"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null)" = installed ] || printf '%s\n' "$name"
  done
}

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

install_packages() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" < /dev/null
}

install() {
  local wanted absent name required=() optional=()
  wanted=$(names "$@")
  if ! command -v dpkg-query > /dev/null || ! command -v apt-get > /dev/null; then
    echo "packages.sh: not a Debian system; these packages or their like are needed:" $wanted
    return 0
  fi
  absent=$(missing $wanted)
  [ -n "$absent" ] || return 0
  for name in $absent; do
    if [[ " ${services[*]} " == *" $name "* ]]; then optional+=("$name"); else required+=("$name"); fi
  done
  echo "installing:" $absent
  as_root apt-get update -q < /dev/null || echo "packages.sh: apt-get update failed; going on with the lists that are here"
  if [ ${#required[@]} -gt 0 ]; then install_packages "${required[@]}"; fi
  for name in ${optional[@]+"${optional[@]}"}; do
    install_packages "$name" || echo "packages.sh: $name is not available; the tests that use it will skip"
  done
}

upgrade() {
  local name installed=()
  command -v dpkg-query > /dev/null && command -v apt-get > /dev/null || return 0
  for name in $(names "$@") linux-libc-dev; do
    [ -n "$(missing "$name")" ] || installed+=("$name")
  done
  install_packages --only-upgrade ${installed[@]+"${installed[@]}"}
}

command=${1:-}
[ $# -gt 1 ] || { sed -n '5,16p' "$0" >&2; exit 2; }
shift
case $command in
  list) names "$@" ;;
  install) install "$@" ;;
  upgrade) upgrade "$@" ;;
  *) echo "packages.sh: no command '$command'" >&2; exit 2 ;;
esac
