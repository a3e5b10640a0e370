#!/usr/bin/env bash
# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0

# For a machine with a GPU and without compilers: everything that needs one, built here, run there. With it go
# programs whose figures are read, not passed: such a machine has the cores for several loops and their servers.
#
#   bash tests/cuda/carry.sh build FOLDER [measure]
#                       needs the CUDA Toolkit (CUDA_HOME, default /usr/local/cuda) with nvcc; NVJPEG_HOME has nvJPEG's
#                       include/ and lib/, where the toolkit has not. With measure: what that needs, too
#   bash FOLDER/carry.sh run [LOG]
#                       the tests: leaves with 0 when every step has passed on a GPU
#   bash FOLDER/carry.sh measure [LOG [STEP...]]
#                       in nine minutes, or some of its steps: one loop and two; nvJPEG, the pool and the bus; planted
#                       defects that the tests see; decoding on 1, 8 and all cores; compute-sanitizer; first touch of
#                       memory. Leaves with 77 when a step was skipped, as without a GPU, else with 0 when none failed
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
  local source to=$1 measure=${2:-} cuda=${CUDA_HOME:-/usr/local/cuda} work test library tests=() decoders=() benches=(fetch_bench image_bench)
  local nvjpeg=${NVJPEG_HOME:-$cuda} programs=("$to"/{gpu_probe,test_cuda_gpu,test_nvcc,quickstart})
  source=$(dirname "$me")/../..
  mkdir -p "$to"
  work=$(mktemp -d)
  printf '#define MILLRACE_TEST_SOURCE_DIR "."\n#define MILLRACE_TEST_DATA_DEFAULT "."\n' > "$work/test_data_default.hpp"
  local compile=(beside g++ -std=c++20 -O2 -foptimize-sibling-calls -I"$source/include" -I"$source" -I"$work"
    -isystem "$cuda/include" -c)
  local link=(beside g++ -static-libstdc++ -static-libgcc '-Wl,--disable-new-dtags,-rpath,$ORIGIN' -Wl,--as-needed)
  local runtime=("$cuda/lib64/libcudart_static.a" -lpthread -ldl -lrt)
  local all=(-lcurl -luring -lssl -lcrypto -lexpat -larchive -lz -lzstd -ljpeg)
  # Machine code for Hopper, PTX for the others.
  local kernels=(beside "$cuda/bin/nvcc" -O2 -gencode arch=compute_90,code=sm_90
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
  if [ -n "$measure" ]; then
    benches+=(${decoders[@]+device_bench})
    for test in "${benches[@]}"; do
      "${compile[@]}" -O3 -DMILLRACE_WITH_JPEG -isystem "$nvjpeg/include" "$source/bench/$test.cpp" -o "$work/$test.o"
    done
    python3 "$source/tests/cuda/defects.py" plant "$source/include" "$work/planted"
    for test in ordering_test ${decoders[@]+image_ordering_test}; do
      "${compile[@]:0:2}" -I"$work/planted" -include "$source/tests/cuda/planted.hpp" "${compile[@]:2}" -O1 \
        -DMILLRACE_TEST_REAL_CUDA=1 -DMILLRACE_WITH_JPEG -isystem "$nvjpeg/include" "$source/tests/cuda/$test.cpp" \
        -o "$work/planted_$test.o"
    done
  fi
  "${compile[@]}" -DEXAMPLE_WITH_CUDA=1 -DMILLRACE_WITH_JPEG "$source/examples/quickstart.cpp" -o "$work/quickstart.o"
  all_done
  "${link[@]}" "${tests[@]}" "$work"/{kernels,normalise}.o -o "$to/test_cuda_gpu" -lCatch2WithMain -luring \
    ${decoders[@]+"${decoders[@]}"} "${runtime[@]}"
  "${link[@]}" "$work/probe.o" -o "$to/gpu_probe" "${runtime[@]}"
  if [ -n "$measure" ]; then
    for test in "${benches[@]}"; do
      "${link[@]}" "$work/$test.o" -o "$to/$test" "${all[@]}" ${decoders[@]+"${decoders[@]}"} "${runtime[@]}"
    done
    "${link[@]}" "$work"/planted_*.o "$work/kernels.o" -o "$to/test_defects" -lCatch2WithMain -luring \
      ${decoders[@]+"${decoders[@]}"} "${runtime[@]}"
    programs+=("$to/test_defects" "${benches[@]/#/$to/}")
    cp "$source/tests/cuda/defects.py" "$to"
  fi
  "${link[@]}" "$work/pipeline.o" -o "$to/test_nvcc" -luring "${runtime[@]}"
  "${link[@]}" "$work/quickstart.o" "$work/classifier.o" -o "$to/quickstart" "${all[@]}" "${runtime[@]}"
  all_done
  strip "${programs[@]}"

  LD_LIBRARY_PATH=$nvjpeg/lib:$nvjpeg/lib64:${LD_LIBRARY_PATH:-} ldd "${programs[@]}" |
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

# One of the steps, in the folder. Leaves with 77 where it has nothing to run on.
only() {
  local n cores failed=0
  cores=$(nproc)
  case $1 in
    gpu) ./gpu_probe ;;
    tests) for n in {1..10}; do ./test_cuda_gpu; done ;;
    nvcc) ./test_nvcc ;;
    quickstart)
      ./quickstart | tee quickstart.log
      grep -q 'training on the GPU' quickstart.log
      ;;
    loops)
      lscpu -e=CPU,CORE,NODE || true
      ./fetch_bench $((cores < 11 ? 2 : 4)) loops
      ;;
    images) ./device_bench 40 images ;;
    defects)
      ./gpu_probe
      export MILLRACE_REQUIRE_GPU=1
      python3 defects.py count copies ./test_defects '-#' '[#ordering_test]'
      python3 defects.py count images ./test_defects '-#' '[#image_ordering_test]'
      ;;
    decoding)
      for n in $(printf '%s\n' 1 8 "$cores" | sort -nu); do
        if [ "$n" -le "$cores" ]; then taskset -c "0-$((n - 1))" ./image_bench $((64 * n)); fi
      done
      ;;
    sanitizer)
      ./gpu_probe
      PATH=$PATH:/usr/local/cuda/bin
      if ! command -v compute-sanitizer; then
        echo 'skipped: there is no compute-sanitizer'
        return 77
      fi
      for n in memcheck initcheck; do
        printf '  %s\n' "$n"
        compute-sanitizer --tool "$n" --report-api-errors no --error-exitcode 9 ./test_cuda_gpu || failed=$?
      done
      return "$failed"
      ;;
    memory) ./device_bench 0 memory ;;
    copies) ./device_bench 500 copies ;;
  esac
}

table=''
shown='^skipped'
status=0

# Runs a step. The lines of its output that are `shown` stand in the table once more.
step() {  # NAME SECONDS
  local rc=0 how began=$SECONDS
  printf '\n===== %s\n' "$1"
  timeout -k 5 "$2" bash "$me" only "$1" < /dev/null 2>&1 | tee step.log || rc=$?
  case $rc in
    0) how=ok ;;
    77) how=skipped ;;
    124 | 137) how="FAILED: stopped after $2 s" ;;
    *) how="FAILED ($rc)" ;;
  esac
  if [ "$rc" != 0 ] && [ "$status" != 1 ]; then status=$((rc == 77 ? 77 : 1)); fi
  table+=$(printf '%-12s %s, %d s' "$1" "$how" $((SECONDS - began)))$'\n'$(grep -E "$shown" step.log || true)$'\n'
}

run() {
  export MILLRACE_REQUIRE_GPU=1
  step gpu 60
  step tests 300
  step nvcc 60
  step quickstart 120
}

# By what is worth most: whatever ends this early, the log has the steps until then.
measure() {
  local name seconds
  shown+='|^  [[:alpha:]]|ERROR SUMMARY'  # figures
  while read -r name seconds; do
    if [ $# = 0 ] || [[ " $* " == *" $name "* ]]; then step "$name" "$seconds"; fi
  done <<< 'loops 90
images 80
defects 120
decoding 60
sanitizer 150
memory 20
copies 50'
}

there() {
  cd "$(dirname "$me")"
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader || true
  "$@"
  printf '\n===== all steps\n%s\n' "${table:-there is no such step}"
  return "$((status == 0 && ${#table} == 0 ? 2 : status))"
}

case ${1:-} in
  build) build "$(realpath -m "${2:?the folder to build into}")" "${3:-}" ;;
  run | measure)
    log=$(realpath -m "${2:-/dev/null}")
    there "$1" "${@:3}" 2>&1 | tee "$log"
    ;;
  only) only "$2" ;;
  *) sed -n '5,22p' "$me"; exit 2 ;;
esac
