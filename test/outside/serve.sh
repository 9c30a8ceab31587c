#!/bin/bash
# serve.sh SERVER COMMAND...: runs a command while a server that stands in etcd's
# place listens on port 2379.
set -euo pipefail

server=$1
shift
if (exec 3<>/dev/tcp/127.0.0.1/2379) 2>/dev/null; then
  echo "outside: something else listens on port 2379" >&2
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
  echo "outside: the server does not come up" >&2
  cat "$dir/log" >&2
  exit 1
fi
timeout 300 "$@"
