#!/usr/bin/env bash
# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0

# Installs the packages that are missing, builds the quickstart and runs it on the S3 server inside it:
#
#   bash examples/quickstart.sh [BUCKET]
#
# With AWS_ENDPOINT_URL_S3 (and keys) in the environment the same program uses that store.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=${MILLRACE_BUILD:-build/quickstart}  # apart from the tests: this one is optimised
mkdir -p "$(dirname "$build")"
bash cmake/packages.sh install build
generator=()
if command -v ninja > /dev/null && [ ! -f "$build/CMakeCache.txt" ]; then generator=(-G Ninja); fi
# Header-only: of one program alone that is built sooner than all bodies are.
cmake -S . -B "$build" ${generator[@]+"${generator[@]}"} -DCMAKE_BUILD_TYPE=Release -DMILLRACE_TEST_COMPILED=OFF \
  > "$build.log" 2>&1 || { cat "$build.log"; exit 1; }
rm -f "$build.log"
cmake --build "$build" -j "${MILLRACE_JOBS:-$(nproc)}" --target example_quickstart
exec "$build/examples/example_quickstart" "$@"
