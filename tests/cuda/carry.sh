#!/usr/bin/env bash
# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0

# For a machine with a GPU and without compilers: everything that needs one, built here, run there. With it goes
# fetch_bench, whose figures are read, not passed: such a machine has the cores for two loops and their servers.
#
#   bash tests/cuda/carry.sh build FOLDER     needs the CUDA Toolkit (CUDA_HOME, default /usr/local/cuda) with nvcc;
#                                             NVJPEG_HOME has nvJPEG's include/ and lib/, where the toolkit has not
#   bash FOLDER/carry.sh run [LOG]            leaves with 0 when every step has passed on a GPU
#
# The programs have the CUDA runtime inside and look for the other libraries beside themselves: DT_RPATH, as RUNPATH
# does not count for what the libraries need in turn. Only the C library is the other machine's.

set -euo pipefail
me=$(readlink -f "${BASH_SOURCE[0]}")

jobs=${MILLRACE_JOBS:-$(nproc)}
running=()

# Runs a command beside others, as many as there are jobs. all_done() waits for the rest; what fails ends the script.
beside() {
  if [ "${#running[@]}" -ge "$jobs" ]; then
    wait "${running[0]}"
    running=("${running[@]:1}")
  fi
  "$@" &
  running+=("$!")
}
all_done() {
  local pid
  for pid in "${running[@]}"; do wait "$pid"; done
  running=()
}

build() {
  local source to=$1 cuda=${CUDA_HOME:-/usr/local/cuda} work test library tests=() decoders=()
  local nvjpeg=${NVJPEG_HOME:-$cuda}
  source=$(dirname "$me")/../..
  mkdir -p "$to"
  work=$(mktemp -d)
  printf '#define MILLRACE_TEST_SOURCE_DIR "."\n#define MILLRACE_TEST_DATA_DEFAULT "."\n' > "$work/test_data_default.hpp"
  local compile=(beside g++ -std=c++20 -O2 -foptimize-sibling-calls -I"$source/include" -I"$source" -I"$work"
    -isystem "$cuda/include" -c)
  local link=(beside g++ -static-libstdc++ -static-libgcc '-Wl,--disable-new-dtags,-rpath,$ORIGIN' -Wl,--as-needed)
  local runtime=("$cuda/lib64/libcudart_static.a" -lpthread -ldl -lrt)
  local all=(-lcurl -luring -lssl -lcrypto -lexpat -larchive -lz -lzstd -ljpeg)
  # Machine code for Ampere and Hopper, PTX for the others.
  local kernels=(beside "$cuda/bin/nvcc" -O2 -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90
    -gencode arch=compute_75,code=compute_75 -I"$source" -I"$source/include" -c)

  for test in "$source"/tests/cuda/*_test.cpp; do
    if grep -qE '#include .*(fake|threaded)_cuda/' "$test"; then continue; fi  # steers a model
    if grep -q '#include <millrace/cuda/nvjpeg.hpp>' "$test"; then
      library=$(compgen -G "$nvjpeg/lib*/libnvjpeg.so.*" | head -n 1) || true
      if [ -z "$library" ] || [ ! -f "$nvjpeg/include/nvjpeg.h" ]; then
        echo "without $(basename "$test"): no nvJPEG in $nvjpeg (NVJPEG_HOME)"
        continue
      fi
      decoders=(-ljpeg "$library")
    fi
    "${compile[@]}" -O1 -DMILLRACE_TEST_REAL_CUDA=1 -DMILLRACE_WITH_JPEG \
      -DMILLRACE_TEST_NVTX_COUNTER='"./nvtx_counter.so"' -isystem "$nvjpeg/include" "$test" \
      -o "$work/$(basename "$test").o"
    tests+=("$work/$(basename "$test").o")
  done
  beside g++ -std=c++20 -O2 -static-libstdc++ -static-libgcc -fPIC -shared -isystem "$cuda/include" \
    "$source/tests/cuda/nvtx_counter.cpp" -o "$to/nvtx_counter.so"
  "${kernels[@]}" -std=c++20 "$source/tests/cuda/kernels.cu" -o "$work/kernels.o"
  "${kernels[@]}" -std=c++20 --diag-suppress=3001 "$source/tests/cuda/normalise.cu" -o "$work/normalise.o"
  "${kernels[@]}" -std=c++20 --diag-suppress=3001 "$source/tests/cuda/pipeline.cu" -o "$work/pipeline.o"
  "${kernels[@]}" -std=c++17 "$source/examples/common/gpu_classifier.cu" -o "$work/classifier.o"
  "${compile[@]}" "$source/tests/support/gpu_probe.cpp" -o "$work/probe.o"
  "${compile[@]}" "$source/bench/device_bench.cpp" -o "$work/device_bench.o"
  "${compile[@]}" "$source/bench/fetch_bench.cpp" -o "$work/fetch_bench.o"
  "${compile[@]}" -DEXAMPLE_WITH_CUDA=1 -DMILLRACE_WITH_JPEG "$source/examples/quickstart.cpp" -o "$work/quickstart.o"
  all_done
  "${link[@]}" "${tests[@]}" "$work"/{kernels,normalise}.o -o "$to/test_cuda_gpu" -lCatch2WithMain -luring \
    ${decoders[@]+"${decoders[@]}"} "${runtime[@]}"
  "${link[@]}" "$work/probe.o" -o "$to/gpu_probe" "${runtime[@]}"
  "${link[@]}" "$work/device_bench.o" -o "$to/device_bench" "${all[@]}" "${runtime[@]}"
  "${link[@]}" "$work/fetch_bench.o" -o "$to/fetch_bench" "${all[@]}"
  "${link[@]}" "$work/pipeline.o" -o "$to/test_nvcc" -luring "${runtime[@]}"
  "${link[@]}" "$work/quickstart.o" "$work/classifier.o" -o "$to/quickstart" "${all[@]}" "${runtime[@]}"
  all_done
  strip --strip-debug "$to"/{test_cuda_gpu,gpu_probe,device_bench,fetch_bench,test_nvcc,quickstart}

  LD_LIBRARY_PATH=$nvjpeg/lib:$nvjpeg/lib64:${LD_LIBRARY_PATH:-} \
    ldd "$to"/{test_cuda_gpu,device_bench,fetch_bench,test_nvcc,quickstart} |
    awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
    { grep -vE '/(libc|libm|libdl|librt|libpthread|libresolv|ld-linux[^/]*)\.so' || true; } |
    while read -r library; do cp -L "$library" "$to/$(basename "$library")"; done
  # 30 MB of Unicode tables for an XML reader of libarchive's that nothing here uses: an empty one instead.
  for library in "$to"/libicudata.so.*; do
    [ -f "$library" ] || continue
    echo "const char icudt${library##*.}_dat[64] = {0};" |
      gcc -x c -shared -fPIC "-Wl,-soname,$(basename "$library")" -o "$library" -
  done
  cp "$me" "$to/carry.sh"
  rm -rf "$work"
  du -sm "$to"
}

run() {
  cd "$(dirname "$me")"
  export MILLRACE_REQUIRE_GPU=1
  local failed=0
  step() {  # NAME SECONDS COMMAND...
    local name=$1 limit=$2 rc=0
    shift 2
    printf '\n===== %s\n' "$name"
    timeout -k 5 "$limit" "$@" < /dev/null || rc=$?
    if [ "$rc" != 0 ]; then printf 'FAILED: %s (%d)\n' "$name" "$rc"; failed=1; fi
  }
  trained_there() { ./quickstart | tee quickstart.log && grep -q 'training on the GPU' quickstart.log; }
  export -f trained_there
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader || true
  step 'a GPU' 60 ./gpu_probe
  step 'tests, ten times' 300 bash -c 'for i in $(seq 10); do ./test_cuda_gpu || exit 1; done'
  step 'a pipeline of nvcc' 60 ./test_nvcc
  step 'quickstart' 120 bash -c trained_there
  step 'device_bench' 240 ./device_bench 1000
  step 'fetch_bench' 180 ./fetch_bench 2 plain
  return "$failed"
}

case ${1:-} in
  build) build "$(realpath -m "${2:?the folder to build into}")" ;;
  run) if [ $# -gt 1 ]; then run 2>&1 | tee "$2"; else run; fi ;;
  *) sed -n '5,14p' "$me"; exit 2 ;;
esac
