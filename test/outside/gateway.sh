#!/bin/bash
# Runs the live tests of Debian's python3-etcd3gw against a server that stands
# in etcd's place: gateway.sh install, then gateway.sh PATH. They want it on port
# 2379. Prints results in the form of Go tests.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
packages=(python3-etcd3gw python3-testtools python3-oslotest)

if [ "$1" = install ]; then
  dpkg -s "${packages[@]}" >/dev/null 2>&1 && exit
  sudo=
  [ "$(id -u)" = 0 ] || sudo=sudo
  $sudo apt-get update -qq
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    "${packages[@]}"
  exit
fi

server=$1
if (exec 3<>/dev/tcp/127.0.0.1/2379) 2>/dev/null; then
  echo "gateway: something else listens on port 2379" >&2
  exit 1
fi
dir=$(mktemp -d)
# Called etcd, the binary behaves as one.
ln -s "$(realpath "$server")" "$dir/etcd"
"$dir/etcd" --data-dir "$dir/data" --listen-client-urls http://127.0.0.1:2379 \
  --advertise-client-urls http://127.0.0.1:2379 --listen-peer-urls http://127.0.0.1:2380 \
  >"$dir/log" 2>&1 &
pid=$!
trap 'kill "$pid" 2>/dev/null || true; wait "$pid" 2>/dev/null || true; rm -rf "$dir"' EXIT

for _ in $(seq 100); do
  if curl -fsS -o "$dir/ready" http://127.0.0.1:2379/readyz 2>/dev/null; then
    ready=1
    break
  fi
  sleep 0.1
done
if [ -z "${ready:-}" ]; then
  echo "gateway: the server does not come up" >&2
  cat "$dir/log" >&2
  exit 1
fi
# Debian's Python: the packages are installed for that one.
timeout 300 /usr/bin/python3 "$here/gateway.py"
