#!/usr/bin/env bash
# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0

# Installs the packages that are missing, builds everything and runs all the tests.
#
#   bash tests/run.sh [CMAKE_OPTION...]     for example -DCMAKE_CXX_COMPILER=clang++-16 or --preset asan
#
# MILLRACE_BUILD names the build folder (build), MILLRACE_JOBS the number of jobs (all cores), MILLRACE_CTEST further
# options of ctest.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=${MILLRACE_BUILD:-build}
jobs=${MILLRACE_JOBS:-$(nproc)}

# Unless told otherwise without optimisation, which takes much longer to build (-DCMAKE_BUILD_TYPE=Release).
case " $* " in
  *" --preset"*) ;;
  *) if [ ! -f "$build/CMakeCache.txt" ]; then set -- --preset default "$@"; fi ;;
esac

bash cmake/packages.sh install build
launcher=()
if command -v ccache > /dev/null; then launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
# Without these, ccache leaves out every file that uses a precompiled header.
export CCACHE_SLOPPINESS=${CCACHE_SLOPPINESS:-pch_defines,time_macros}

cmake -S . -B "$build" ${launcher[@]+"${launcher[@]}"} "$@"
# Goes on after an error, so that one run shows them all.
keep_going=()
if [ -f "$build/build.ninja" ]; then keep_going=(-- -k 0); fi
cmake --build "$build" -j "$jobs" ${keep_going[@]+"${keep_going[@]}"}

# The full output of every test goes to the report: what a test skipped is said even where it passed. One test more than
# there are jobs: a third of their time they wait, for servers, processes and disks.
report=$(cd "$build" && pwd)/tests.xml
status=0
ctest --test-dir "$build" -j "$((jobs + 1))" --output-on-failure --no-tests=error --output-junit "$report" \
  --test-output-size-passed 4000000 --test-output-size-failed 4000000 ${MILLRACE_CTEST:-} < /dev/null || status=$?
python3 tests/summarize.py "$report" || status=1
exit "$status"
