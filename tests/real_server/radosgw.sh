#!/usr/bin/env bash
# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0

# A throw-away S3 server on loopback: Ceph's gateway (radosgw) above one monitor and one OSD that keeps everything in
# memory, from the installed packages (Debian: radosgw ceph-mon ceph-osd ceph-common).
#
#   bash radosgw.sh start FOLDER    FOLDER must be empty or absent; prints the endpoint. FOLDER/environment then holds
#                                   what clients need, as lines of NAME=value
#   bash radosgw.sh stop FOLDER     ends it; the folder stays, with the logs
#
# Ends with 77 and the reason when a program is missing. The ports are free ones, so several servers may run at once.

set -euo pipefail

command=${1:-}
[ $# = 2 ] || { sed -n '5,13p' "$0" >&2; exit 2; }
mkdir -p "$2"
folder=$(cd "$2" && pwd)
access_key=MILLRACETESTKEY
secret_key='mill/race+secret/of+40/characters+or/so='
sts_key=sixteen.byte.key

say() { echo "radosgw.sh: $*" >&2; }

# Ends a process by the id in a file and waits until it is gone.
end_process() {
  local id file=$1
  [ -s "$file" ] || return 0
  id=$(tr -dc 0-9 < "$file")
  kill "$id" 2> /dev/null || true
  for _ in $(seq 50); do
    kill -0 "$id" 2> /dev/null || break
    sleep 0.1
  done
  kill -KILL "$id" 2> /dev/null || true
  rm -f "$file"
}

# What the gateway answers to a presigned URL that is over. Version 19 knows its own error and forgot the status of it
# (rgw.log: "set_req_state_err err_no=2223 resorting to 500").
expired_status() {
  case $(radosgw --version) in
    "ceph version 19."*) echo 500 ;;
    *) echo 403 ;;
  esac
}

stop() {
  local name
  for name in rgw osd mon; do end_process "$folder/$name.pid"; done
}

# Repeats a command until it succeeds: SECONDS WHAT COMMAND...
wait_for() {
  local until=$((SECONDS + $1)) what=$2
  shift 2
  until "$@" > "$folder/wait.out" 2>&1; do
    if [ $SECONDS -ge $until ]; then
      say "no $what within the time; the last words of the servers:"
      tail -n 5 "$folder"/wait.out "$folder"/*.log >&2 || true
      return 1
    fi
    sleep 0.2
  done
}

configure() {
  local fsid=$1 mon_port=$2 port=$3
  cat > "$folder/ceph.conf" << CONF
[global]
fsid = $fsid
mon host = v2:127.0.0.1:$mon_port
public addr = 127.0.0.1
ms bind msgr1 = false
keyring = $folder/keyring
run dir = $folder
admin socket = $folder/\$name.\$pid.sock
crash dir = $folder
log file = $folder/\$name.log
log to stderr = false
err to stderr = false
# One disk, one copy, few groups: quick to start.
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pgp num = 1
osd pool default pg autoscale mode = off
mon max pg per osd = 1000
mon allow pool size one = true
osd crush chooseleaf type = 0
osd crush update on start = true
# How full the disk of the machine is does not matter here.
mon data avail warn = 1
mon data avail crit = 0
[mon.a]
mon data = $folder/mon
pid file = $folder/mon.pid
[osd.0]
osd data = $folder/osd
osd objectstore = memstore
memstore device bytes = 2147483648
pid file = $folder/osd.pid
keyring = $folder/keyring
[client.rgw]
keyring = $folder/keyring
rgw data = $folder/rgw
rgw frontends = beast endpoint=127.0.0.1:$port tcp_nodelay=1
rgw thread pool size = 32
rgw enable usage log = false
rgw enable gc threads = false
rgw enable lc threads = false
rgw enable quota threads = false
rgw run sync thread = false
# *.localhost is loopback everywhere (RFC 6761): buckets can be parts of the host name.
rgw dns name = s3.localhost
rgw sts key = $sts_key
rgw s3 auth use sts = true
# Else the error of a wrong secret is that of a wrong session token.
rgw s3 auth order = local, sts
CONF
}

# A command of ceph's, on this cluster alone; a server that does not answer does not hold it for ever.
ceph_command() { timeout -k 5 30 ceph -c "$CEPH_CONF" "$@"; }
has_osd() { ceph_command osd stat | grep -q '1 up'; }
admin() { timeout -k 5 60 radosgw-admin -c "$CEPH_CONF" -n client.rgw "$@" >> "$folder/admin.out" 2>&1; }
answers() { curl --noproxy '*' -s -m 5 -o /dev/null "$1"; }

# A role that the user may take on, for temporary credentials; prints its name. Without it there are none.
make_role() {
  admin role create --role-name=reader --assume-role-policy-doc='{"Version": "2012-10-17", "Statement": [{"Effect":
    "Allow", "Principal": {"AWS": ["arn:aws:iam:::user/tester"]}, "Action": ["sts:AssumeRole"]}]}' &&
    admin role-policy put --role-name=reader --policy-name=all --policy-doc='{"Version": "2012-10-17", "Statement": [
    {"Effect": "Allow", "Action": ["s3:*"], "Resource": "arn:aws:s3:::*"}]}' &&
    echo arn:aws:iam:::role/reader
}

start() {
  local role program name missing="" ports fsid osd_id
  for program in ceph-mon ceph-osd radosgw radosgw-admin ceph ceph-authtool monmaptool curl python3; do
    command -v "$program" > /dev/null || missing+=" $program"
  done
  if [ -n "$missing" ]; then
    say "not found:$missing (Debian: radosgw ceph-mon ceph-osd ceph-common curl)"
    exit 77
  fi
  if [ -n "$(ls -A "$folder")" ]; then
    say "the folder is not empty: $folder"
    exit 2
  fi
  ports=($(python3 -c '
import socket
held = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*(s.getsockname()[1] for s in held))'))
  fsid=$(cat /proc/sys/kernel/random/uuid)
  osd_id=$(cat /proc/sys/kernel/random/uuid)
  endpoint=http://127.0.0.1:${ports[1]}
  export CEPH_CONF=$folder/ceph.conf
  configure "$fsid" "${ports[0]}" "${ports[1]}"
  mkdir "$folder/mon" "$folder/osd" "$folder/rgw"
  trap 'rc=$?; if [ $rc != 0 ]; then stop; fi' EXIT

  ceph-authtool --create-keyring "$folder/keyring" --gen-key -n mon. --cap mon 'allow *' > /dev/null
  for name in client.admin client.rgw osd.0; do
    ceph-authtool "$folder/keyring" --gen-key -n $name --cap mon 'allow *' --cap osd 'allow *' > /dev/null
  done
  monmaptool --create --fsid "$fsid" --addv a "[v2:127.0.0.1:${ports[0]}]" "$folder/monmap" > /dev/null
  ceph-mon -c "$CEPH_CONF" --mkfs -i a --monmap "$folder/monmap" --keyring "$folder/keyring"
  ceph-mon -c "$CEPH_CONF" -i a < /dev/null > "$folder/mon.out" 2>&1
  wait_for 60 "monitor" ceph_command auth import -i "$folder/keyring"
  ceph_command osd new "$osd_id" > /dev/null
  ceph-osd -c "$CEPH_CONF" -i 0 --mkfs --osd-uuid "$osd_id" > "$folder/osd.out" 2>&1
  ceph-osd -c "$CEPH_CONF" -i 0 < /dev/null >> "$folder/osd.out" 2>&1
  wait_for 60 "storage" has_osd
  setsid radosgw -c "$CEPH_CONF" -n client.rgw -f < /dev/null > "$folder/rgw.out" 2>&1 &
  echo $! > "$folder/rgw.pid"
  wait_for 120 "gateway" answers "$endpoint/"
  admin user create --uid=tester --display-name=tester --access-key="$access_key" --secret-key="$secret_key"
  role=$(make_role || true)
  cat > "$folder/environment" << ENV
AWS_ENDPOINT_URL_S3=$endpoint
AWS_REGION=default
AWS_ACCESS_KEY_ID=$access_key
AWS_SECRET_ACCESS_KEY=$secret_key
MILLRACE_TEST_ROLE=$role
MILLRACE_TEST_EXPIRED_STATUS=$(expired_status)
ENV
  echo "$endpoint"
}

case $command in
  start) start ;;
  stop) stop ;;
  *) say "no command '$command'"; exit 2 ;;
esac
