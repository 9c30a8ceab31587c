#!/bin/bash
# Tests the alerts and the dashboards with the real Prometheus: check.sh LEASEHOLD, a binary. Each
# alert fires and clears on synthetic series; Prometheus accepts every query of the dashboards; and
# filling, emptying and killing a member makes alerts fire and clear.
set -euo pipefail
leasehold=$(realpath "$1")
cd "$(dirname "$0")"
. ./prometheus.sh
fail() { echo "check.sh: $*" >&2; exit 1; }

"$promtool" check rules alerts.yaml
"$promtool" test rules alerts_test.yaml

client=$(port) peer=$(port) web=$(port)
ctl() { "$leasehold" --endpoints "127.0.0.1:$client" "$@"; }
serve() {
  "$leasehold" serve --data-dir "$work/data" --quota-backend-bytes 1000000 --log-level error \
    --listen-client-urls "http://127.0.0.1:$client" --advertise-client-urls "http://127.0.0.1:$client" \
    --listen-peer-urls "http://127.0.0.1:$peer" --initial-advertise-peer-urls "http://127.0.0.1:$peer" \
    --initial-cluster "default=http://127.0.0.1:$peer" &
  member=$!
  pids+=("$member")
}
serve

# The same rules without their "for" durations.
sed 's/for: .*/for: 1s/' alerts.yaml > "$work/alerts.yaml"
cat > "$work/prometheus.yaml" <<END
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [$work/alerts.yaml]
scrape_configs:
  - job_name: leasehold
    static_configs: [{targets: ["127.0.0.1:$client"]}]
END
"$prometheus" --config.file "$work/prometheus.yaml" --storage.tsdb.path "$work/tsdb" \
  --web.listen-address "127.0.0.1:$web" --log.level error &
pids+=($!)

# ask sends a query, and prints the answer.
ask() {
  curl -sS --get --data-urlencode "query=$1" "http://127.0.0.1:$web/api/v1/query"
}
firing() { ask "ALERTS{alertname=\"$1\", alertstate=\"firing\"}" | grep '"metric"' >/dev/null; }
# until_true runs a command until it succeeds, for a minute at most.
until_true() {
  for _ in $(seq 120); do
    "$@" 2>/dev/null && return
    sleep 0.5
  done
  fail "in vain: $*"
}
not() { ! "$@"; }

up() { ask 'up{job="leasehold"} == 1' | grep '"metric"' >/dev/null; }
until_true up
for alert in LeaseholdClusterDown LeaseholdMemberDown LeaseholdQuotaFills LeaseholdAlarm; do
  not firing $alert || fail "$alert fires, and all is well"
done

# Each query of the dashboards, for this cluster.
queries=0
while read -r query; do
  query=${query//\$job/leasehold}
  answer=$(ask "${query//\$__rate_interval/10s}")
  grep -q '"status":"success"' <<< "$answer" || fail "$query: $answer"
  queries=$((queries + 1))
done < <(grep -ho '"expr": ".*"' dashboards/*.json | sed 's/^"expr": "//; s/"$//; s/\\"/"/g; s/\\u003e/>/g; s/\\u003c/</g')
[ "$queries" -gt 30 ] || fail "only $queries queries"

head -c 900000 /dev/zero | tr '\0' x | ctl put big > /dev/null
until_true firing LeaseholdQuotaFills
head -c 900000 /dev/zero | tr '\0' x | ctl put more > /dev/null 2>&1 && fail "the quota has no end"
until_true firing LeaseholdAlarm
ctl del big > /dev/null
ctl compaction "$(ctl get x -w json | grep -o '"revision":[0-9]*' | cut -d: -f2)" > /dev/null
until_true not firing LeaseholdQuotaFills
until_true not firing LeaseholdAlarm
kill -9 "$member"
until_true firing LeaseholdMemberDown
until_true firing LeaseholdClusterDown
serve
until_true not firing LeaseholdMemberDown
until_true not firing LeaseholdClusterDown
echo "check.sh: the rules hold, $queries queries are understood, and four alerts fired and cleared"
