# Shared by check.sh and pictures.sh: the directory $work and the processes in $pids, both of which
# are removed at exit, and a Prometheus.

work=$(mktemp -d)
pids=()
finish() {
  for p in "${pids[@]}"; do kill "$p" 2>/dev/null || true; done
  wait 2>/dev/null || true
  rm -rf "$work"
}
trap finish EXIT

# Debian's package is unpacked, not installed: its service would start.
prometheus=$(command -v prometheus || true)
promtool=$(command -v promtool || true)
if [ -z "$promtool" ]; then
  (
    cd "$work"
    apt-get download -qq prometheus || { apt-get update -qq && apt-get download -qq prometheus; }
    dpkg -x prometheus_*.deb deb
  ) >&2
  prometheus=$work/deb/usr/bin/prometheus
  promtool=$work/deb/usr/bin/promtool
fi

# port prints a free port.
port() {
  local p
  for _ in $(seq 100); do
    p=$((20000 + RANDOM % 12000))
    (exec 3<>"/dev/tcp/127.0.0.1/$p") 2>/dev/null || { echo "$p"; return; }
  done
  echo "no free port" >&2
  return 1
}
