#!/usr/bin/env bash
# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0

# A throw-away moto server on loopback: the S3 that most Python projects test against. It keeps everything in memory and
# looks at no signature.
#
#   bash moto.sh start FOLDER    FOLDER must be empty or absent; prints the endpoint. FOLDER/environment then holds what
#                                clients need, as lines of NAME=value
#   bash moto.sh stop FOLDER     ends it; the folder stays, with the log
#
# Debian has no package of it: where Python ($MILLRACE_TEST_PYTHON) does not know moto, pip puts it into
# $MILLRACE_TEST_PACKAGES, once. Ends with 77 and the reason where that cannot be done.

set -euo pipefail

command=${1:-}
[ $# = 2 ] || { sed -n '5,14p' "$0" >&2; exit 2; }
mkdir -p "$2"
folder=$(cd "$2" && pwd)
python=${MILLRACE_TEST_PYTHON:-python3}
packages=${MILLRACE_TEST_PACKAGES:-$folder/packages}
export PYTHONPATH=$packages${PYTHONPATH:+:$PYTHONPATH}

say() { echo "moto.sh: $*" >&2; }
has_moto() { "$python" -c 'import boto3, flask_cors, moto.server' > /dev/null 2>&1; }

install_moto() {
  local fresh=$packages.new.$$
  if ! timeout -k 5 120 "$python" -m pip install -q --disable-pip-version-check --retries 0 --timeout 15 \
    --target "$fresh" 'moto[s3]' flask flask-cors > "$folder/pip.log" 2>&1 < /dev/null; then
    rm -rf "$fresh"
    say "moto is not installed, and pip cannot: $(tail -n 1 "$folder/pip.log")"
    exit 77
  fi
  rm -rf "$packages"
  mkdir -p "$(dirname "$packages")"
  mv "$fresh" "$packages"
}

stop() {
  local id
  [ -s "$folder/moto.pid" ] || return 0
  id=$(tr -dc 0-9 < "$folder/moto.pid")
  kill "$id" 2> /dev/null || true
  for _ in $(seq 50); do
    kill -0 "$id" 2> /dev/null || break
    sleep 0.1
  done
  kill -KILL "$id" 2> /dev/null || true
  rm -f "$folder/moto.pid"
}

start() {
  local port endpoint until=$((SECONDS + 60))
  has_moto || install_moto
  if ! has_moto; then
    say "moto is installed and cannot be used: $("$python" -c 'import moto.server' 2>&1 | tail -n 1)"
    exit 77
  fi
  port=$("$python" -c 'import socket; print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])')
  endpoint=http://127.0.0.1:$port
  trap 'rc=$?; if [ $rc != 0 ]; then stop; fi' EXIT
  setsid "$python" -c 'import sys; from moto.server import main; main(sys.argv[1:])' -H 127.0.0.1 -p "$port" \
    > "$folder/moto.log" 2>&1 < /dev/null &
  echo $! > "$folder/moto.pid"
  until "$python" -c 'import sys, urllib.request
urllib.request.build_opener(urllib.request.ProxyHandler({})).open(sys.argv[1], timeout=5)' "$endpoint/" 2> /dev/null; do
    if [ $SECONDS -ge $until ]; then
      say "no answer within the time; the last words of the server:"
      tail -n 5 "$folder/moto.log" >&2
      exit 1
    fi
    sleep 0.2
  done
  cat > "$folder/environment" << ENV
AWS_ENDPOINT_URL_S3=$endpoint
AWS_REGION=us-east-1
AWS_ACCESS_KEY_ID=MILLRACETESTKEY
AWS_SECRET_ACCESS_KEY=mill/race+secret/of+40/characters+or/so=
MILLRACE_TEST_ROLE=
MILLRACE_TEST_NO_LINE_FEEDS=1
ENV
  echo "$endpoint"
}

case $command in
  start) start ;;
  stop) stop ;;
  *) say "no command '$command'"; exit 2 ;;
esac
