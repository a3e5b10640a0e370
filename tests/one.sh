#!/usr/bin/env bash
# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0

# Compiles test files alone and runs them: seconds where a build of everything takes minutes.
#
#   bash tests/one.sh tests/tar/reader_test.cpp [MORE.cpp...] [-- OPTIONS OF CATCH2]
#
# CXX chooses the compiler (g++), SANITIZE its sanitizers (address,undefined or thread), MILLRACE_BUILD the folder for
# objects (build/one). Needs the packages of group build (cmake/packages.sh), and tests/parquet the folder of pyarrow's
# wheel (MILLRACE_PYARROW, build/pyarrow/pyarrow). Not for tests/cuda, whose models of the CUDA runtime are linked in
# CMake only.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

files=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do files+=("$1"); shift; done
[ $# -eq 0 ] || shift
[ ${#files[@]} -gt 0 ] || { sed -n '5,12p' "$0" >&2; exit 2; }
for file in "${files[@]}"; do
  [ -f "$file" ] || { echo "one.sh: there is no $file" >&2; exit 2; }
  [[ $file != *tests/cuda/* ]] || { echo "one.sh: $file needs CMake: -DMILLRACE_TEST_AREAS=cuda" >&2; exit 2; }
done

compiler=${CXX:-g++}
out=$(realpath -m "${MILLRACE_BUILD:-build/one}")/$(basename "$compiler")${SANITIZE:+-$SANITIZE}
mkdir -p "$out/generated"
printf '#define MILLRACE_TEST_SOURCE_DIR "%s"\n#define MILLRACE_TEST_DATA_DEFAULT "%s/../shared/data"\n' "$PWD" "$PWD" \
  > "$out/generated/test_data_default.hpp"

flags=(-std=c++20 -O0 -g1 -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror -I. -I"$out/generated" -Iinclude)
for component in HTTP S3 TAR JPEG PNG WEBP AUDIO DLPACK S3_SERVER; do flags+=("-DMILLRACE_WITH_$component"); done
if [[ $compiler = *clang* ]]; then flags+=(-Wno-sign-conversion); else flags+=(-foptimize-sibling-calls); fi
if [ -n "${SANITIZE:-}" ]; then
  flags+=("-fsanitize=$SANITIZE" -fno-omit-frame-pointer -fno-sanitize-recover=all)
  # g++ grows the stack at every hop of a coroutine where it checks the stack's addresses.
  if [[ $SANITIZE = *address* && $compiler != *clang* ]]; then flags+=(--param=asan-stack=0); fi
fi
launcher=()
if command -v ccache > /dev/null; then launcher=(ccache); fi
compile() { ${launcher[@]+"${launcher[@]}"} "$compiler" "${flags[@]}" -c "$@"; }

libraries=$(pkg-config --libs liburing libcurl openssl expat libarchive zlib libzstd libjpeg spng libwebpdemux libwebp \
  sndfile soxr simdjson)
objects=()

# Catch2 3 comes with a main().
if pkg-config --exists catch2-with-main; then
  libraries+=" $(pkg-config --libs catch2-with-main)"
else
  objects+=("$out/main.o")
  if [ ! -f "$out/main.o" ]; then
    printf '#define CATCH_CONFIG_MAIN\n#include <catch2/catch.hpp>\n' > "$out/main.cpp"
    compile "$out/main.cpp" -o "$out/main.o"
  fi
fi

# What the tests of some areas need beside their files, as in tests/CMakeLists.txt: the S3 server that many share,
# libraries that are loaded.
shared() {
  local name=$1
  shift
  compile -fPIC "$@" -o "$out/$name.o"
  # shellcheck disable=SC2086
  "$compiler" "${flags[@]}" -shared "$out/$name.o" -o "$out/lib$name.so" $libraries
}
if grep -q 's3_server' "${files[@]}"; then files+=(tests/support/s3_server.cpp); fi
if [[ " ${files[*]}" = *tests/shared_objects/* ]]; then
  for plugin in first_plugin second_plugin; do
    shared "$plugin" -fvisibility=hidden -fvisibility-inlines-hidden "-DMILLRACE_PLUGIN=$plugin" \
      tests/shared_objects/plugin.cpp
    libraries+=" -L$out -Wl,-rpath,$out -l$plugin"
  done
fi
if [[ " ${files[*]}" = *tests/dlpack/* ]]; then
  shared batch_library tests/dlpack/batch_library.cpp
  flags+=("-DMILLRACE_TEST_BATCH_LIBRARY=\"$out/libbatch_library.so\"")
fi
if grep -q 'millrace/parquet.hpp\|parquet_file.hpp' "${files[@]}"; then
  pyarrow=${MILLRACE_PYARROW:-build/pyarrow/pyarrow}
  flags+=(-isystem "$pyarrow/include")
  libraries+=" $(echo "$pyarrow"/libparquet.so.*) $(echo "$pyarrow"/libarrow.so.*) -Wl,-rpath,$(realpath -m "$pyarrow")"
fi

if grep -q 'video' "${files[@]}"; then libraries+=" $(pkg-config --libs libavformat libavcodec libswscale libavutil)"; fi

for file in "${files[@]}"; do
  object=$out/${file//\//_}.o
  compile "$file" -o "$object" &
  objects+=("$object")
  if [ $(($(jobs -pr | wc -l))) -ge "$(nproc)" ]; then wait -n; fi
done
while [ -n "$(jobs -p)" ]; do wait -n; done

program=$out/${files[0]//\//_}.run
# shellcheck disable=SC2086
"$compiler" "${flags[@]}" "${objects[@]}" -o "$program" $libraries -ldl -lpthread
"$program" "$@"
