#!/bin/bash
# Draws the dashboards of a cluster of three that has served the demonstration programs for a
# minute: pictures.sh LEASEHOLD DIRECTORY. It fails if a panel that should have data is empty.
set -euo pipefail
leasehold=$(realpath "$1") out=$(realpath "$2")
cd "$(dirname "$0")"
. ./prometheus.sh

first=$(port) web=$(port)
"$leasehold" dev --demo --port "$first" --data-dir "$work/data" > "$work/dev.log" 2>&1 &
pids+=($!)
cat > "$work/prometheus.yaml" <<END
global: {scrape_interval: 1s}
scrape_configs:
  - job_name: leasehold
    static_configs:
      - targets: ["127.0.0.1:$first", "127.0.0.1:$((first + 10))", "127.0.0.1:$((first + 20))"]
END
"$prometheus" --config.file "$work/prometheus.yaml" --storage.tsdb.path "$work/tsdb" \
  --web.listen-address "127.0.0.1:$web" --log.level error &
pids+=($!)
# Programs with caches, and writes that wait for them.
go build -C ../.. -o "$work/configstore" ./examples/configstore
"$work/configstore" -endpoints "127.0.0.1:$first" -readers 20 -changes 150 -pause 500ms \
  > "$work/caches.log" 2>&1 &
pids+=($!)
sleep 50
"$leasehold" --endpoints "127.0.0.1:$first" lease grant 5 > /dev/null # it expires, because nothing renews it
sleep 25
# The cluster has no certificates, takes no snapshot in its first minute, and no call need fail.
go run -C .. ./monitoring -prometheus "http://127.0.0.1:$web" -out "$out" \
  -empty 'Certificate|Snapshot|Failed'
