#!/usr/bin/env bash
# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0

# Both commands of the README where nothing is installed yet: in a fresh Debian, made by debootstrap in a folder, which
# gets the packages that the commands install themselves and nothing else.
#
#   bash tests/bare.sh [--keep] [SUITE [AREA...]]
#
# SUITE is a name that debootstrap knows: bookworm (Debian 12, unless told otherwise), trixie (Debian 13) or another
# release. Of the tests, only those of each tests/AREA that is named are built and run, all without; the quickstart
# always. --keep leaves the tree. As root or with sudo. What is not committed is there, too; the sources stand at the
# same path as here and are compiled as .ci/run does. The compiler cache of this machine is lent (the tree has no ccache
# of its own), so that what was compiled here is not compiled again. Mounts are those of a process of its own, and end
# with it. MILLRACE_BUILD names the folder (build/bare-SUITE) of the tree and of the results, tests.xml. Where such a
# tree cannot be made, that is said and counts as skipped.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source=$PWD

keep=
inside=
suite=
areas=()
for argument in "$@"; do
  case $argument in
    --keep) keep=--keep ;;
    --inside) inside=yes ;;
    -*) sed -n '5,18p' "$0" >&2; exit 2 ;;
    *) if [ -z "$suite" ]; then suite=$argument; else areas+=("$argument"); fi ;;
  esac
done
suite=${suite:-bookworm}
folder=$(realpath -m "${MILLRACE_BUILD:-build/bare-$suite}")
prefix=${folder##*/}
tree=$folder/tree
report=$folder/tests.xml

skip() {
  local reason=${1//&/and}
  printf '<testsuite><testcase name="%s" status="notrun"><system-out>skipped: %s</system-out></testcase></testsuite>\n' \
    "$prefix" "${reason//</(}" > "$report"
  echo "skipped: $prefix: $1"
  exit 0
}

# --- outside: the sources, and a process that may mount

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

if [ -z "$inside" ]; then
  mkdir -p "$folder"
  rm -f "$report"
  as_root true 2> /dev/null || skip "it needs root or sudo"
  PATH=$PATH:/usr/sbin:/sbin command -v debootstrap > /dev/null || skip "there is no debootstrap (Debian: debootstrap)"
  alone=(unshare --mount --pid --fork --kill-child)
  as_root "${alone[@]}" bash -c "mount -t tmpfs none '$folder' && chroot / true" 2> "$folder/log" ||
    skip "this machine lets nothing be mounted, or has no chroot: $(tail -n 1 "$folder/log")"
  if git rev-parse --git-dir > /dev/null 2>&1; then
    git ls-files -z --cached --others --exclude-standard |
      tar --create --file "$folder/source.tar" --null --files-from - --ignore-failed-read
  else
    tar --create --file "$folder/source.tar" --exclude ./build .
  fi
  cache=$(ccache -k cache_dir 2> /dev/null || true)
  [ -z "$cache" ] || mkdir -p "$cache"
  status=0
  as_root env BARE_CACHE="$cache" MILLRACE_BUILD="$folder" MILLRACE_JOBS="${MILLRACE_JOBS:-$(nproc)}" \
    CCACHE_MAXSIZE="${CCACHE_MAXSIZE:-}" \
    "${alone[@]}" bash tests/bare.sh --inside $keep "$suite" ${areas[@]+"${areas[@]}"} || status=$?
  # What root wrote into it stays the user's.
  if [ -n "$cache" ] && [ "$(id -u)" != 0 ]; then as_root chown -R "$(id -u):$(id -g)" "$cache" "$folder"; fi
  exit "$status"
fi

# --- inside: as root; mounts are visible only here

export PATH=$PATH:/usr/sbin:/sbin
began=$SECONDS
passed_time() {
  printf '%s: %d s\n' "$1" "$((SECONDS - began))"
  began=$SECONDS
}

clean() {
  cd /
  # The last mounted first. A tree whose mounts do not end is not removed: its files would be those of this machine.
  awk -v tree="$tree/" 'index($5, tree) == 1 { print $5 }' /proc/self/mountinfo | tac | xargs -r -n 1 umount --lazy || keep=--keep
  if [ -z "$keep" ]; then rm -rf --one-file-system "$tree"; fi
  rm -f "$folder/source.tar"
}
rm -rf --one-file-system "$tree"
trap clean EXIT
trap 'exit 1' INT TERM HUP

# The mirrors that this machine takes its own release from, with the updates: where it is the same, the same compiler,
# and its packages are here already. Another release of the same distribution is on the same mirrors. Elsewhere the one
# that debootstrap knows.
here=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
origin=Debian
if [ "$(basename "$(readlink -f "/usr/share/debootstrap/scripts/$suite")")" = gutsy ]; then origin=Ubuntu; fi
sources=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(CODENAME) $(COMPONENT) $(ORIGIN)' \
  'Created-By: Packages' 2> /dev/null |
  awk -v here="$here" -v suite="$suite" -v origin="$origin" \
    '$5 == origin && index($3, here) == 1 { print "deb", $1, suite substr($2, length(here) + 1), $4 }' | sort -u || true)
mirror=$(awk -v suite="$suite" '$3 == suite { print $2; exit }' <<< "$sources")
options=(--variant=minbase)
if [ "$suite" = noble ]; then options+=(--components=main,universe); fi
if [[ $mirror = https:* ]]; then options+=(--include=ca-certificates); fi
debootstrap "${options[@]}" "$suite" "$tree" ${mirror:+"$mirror"} > "$folder/log" 2>&1 ||
  skip "debootstrap made no tree of $suite: $(tail -n 1 "$folder/log")"
[ -z "$mirror" ] || printf '%s\n' "$sources" > "$tree/etc/apt/sources.list"
apt-config dump Acquire | grep -iE '^Acquire::(https?::.*proxy|.*Proxy|Check-)' > "$tree/etc/apt/apt.conf.d/99bare" || true
printf '127.0.0.1 localhost\n::1 localhost ip6-localhost\n' > "$tree/etc/hosts"
passed_time "a tree of $suite"

mount -t proc proc "$tree/proc"
mount --rbind /sys "$tree/sys"
mkdir -p "$tree/dev/shm" "$tree/dev/pts"
mount -t tmpfs tmpfs "$tree/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$tree/dev/pts"

mkdir -p "$tree$source"
tar --extract --file "$folder/source.tar" --directory "$tree$source" --no-same-owner
data=$(dirname "$source")/shared/data
if [ -d "$data" ]; then
  mkdir -p "$tree$data"
  mount --bind "$data" "$tree$data"
  mount -o remount,bind,ro "$tree$data"
fi

# Packages that were downloaded here for this release: apt takes a link for what it would download.
archives=$(apt-config shell folder Dir::Cache::archives/d | sed -n "s/^folder='\(.*\)'$/\1/p")
if [ "$suite" = "$here" ] && [ -d "$archives" ]; then
  mkdir -p "$tree/run/archives" "$tree/var/cache/apt/archives"
  mount --bind "$archives" "$tree/run/archives"
  mount -o remount,bind,ro "$tree/run/archives"
  find "$archives" -maxdepth 1 -name '*.deb' -printf '/run/archives/%f\0' |
    xargs -r -0 ln -sf --target-directory "$tree/var/cache/apt/archives"
fi

# The ccache of this machine with the libraries that it is linked with, under a name that the commands find.
lent=()
if [ -n "${BARE_CACHE:-}" ]; then
  mkdir -p "$tree/run/ccache/cache"
  program=$(readlink -f "$(command -v ccache)")
  cp "$program" $(ldd "$program" | grep -o '/[^ ]*') "$tree/run/ccache"
  loader=$(cd "$tree/run/ccache" && echo ld-linux*)
  # ccache keeps what was compiled in one language apart from another's, so it has that of the other steps.
  { printf '#!/bin/sh\n'
    for name in LANG LC_ALL LC_CTYPE LC_MESSAGES; do
      [ -z "${!name:-}" ] || printf 'export %s=%q\n' "$name" "${!name}"
    done
    printf 'exec /run/ccache/%s --library-path /run/ccache /run/ccache/%s "$@"\n' "$loader" "${program##*/}"
  } > "$tree/usr/local/bin/ccache"
  chmod +x "$tree/usr/local/bin/ccache"
  mount --bind "$BARE_CACHE" "$tree/run/ccache/cache"
  lent=(CCACHE_DIR=/run/ccache/cache CCACHE_BASEDIR="$source" CCACHE_NOHASHDIR=1
    ${CCACHE_MAXSIZE:+"CCACHE_MAXSIZE=$CCACHE_MAXSIZE"})
fi

# What a user types, with nothing in the environment but the way out.
typed() {
  local proxies
  mapfile -t proxies < <(env | grep -iE '^(https?|no|all)_proxy=' || true)
  chroot "$tree" env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb \
    MILLRACE_JOBS="$MILLRACE_JOBS" ${proxies[@]+"${proxies[@]}"} ${lent[@]+"${lent[@]}"} \
    bash -c 'cd "$1" && shift && exec env "$@"' bash "$source" "$@" < /dev/null
}

typed bash cmake/packages.sh install build > "$folder/log" 2>&1 || { cat "$folder/log"; exit 1; }
passed_time "its packages"
status=0
options=(-DMILLRACE_WERROR=ON)
if [ ${#areas[@]} -gt 0 ]; then
  options+=("-DMILLRACE_TEST_AREAS=$(IFS=';'; echo "${areas[*]}")" -DMILLRACE_TOOLS=OFF -DMILLRACE_EXAMPLES=OFF
    -DMILLRACE_BENCH=OFF)
fi
# If areas are named, only quick cases run: the others repeat these for minutes.
quick=()
if [ ${#areas[@]} -gt 0 ]; then quick=('MILLRACE_CTEST=--exclude-regex [.]slow$'); fi
typed MILLRACE_BUILD=build/default ${quick[@]+"${quick[@]}"} bash tests/run.sh "${options[@]}" || status=1
passed_time "bash tests/run.sh"
quickstart=run
typed bash examples/quickstart.sh || { quickstart=fail status=1; }
passed_time "bash examples/quickstart.sh"

# One report of both. None where nothing was tested: then the caller counts a failure.
python3 - "$tree$source/build/default/tests.xml" "$quickstart" "$report" "$prefix" << 'END'
import sys
import xml.etree.ElementTree as tree

try:
    suite = tree.parse(sys.argv[1])
except OSError:
    sys.exit("nothing was tested")
for case in suite.getroot().iter("testcase"):
    case.set("name", f"{sys.argv[4]}: {case.get('name')}")
tree.SubElement(suite.getroot(), "testcase", name=f"{sys.argv[4]}: quickstart", status=sys.argv[2])
suite.write(sys.argv[3])
END
exit "$status"
