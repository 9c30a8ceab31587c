#!/bin/bash
# Runs suites that others wrote against the leasehold binary in etcd's place.
# See README.md beside this file.
set -euo pipefail

version=v3.7.3 # of etcd's etcdctl, etcdutl and tests
etcd3=1.1.2    # of Node's package etcd3
kubernetes=v0.37.2 # of Kubernetes' API server
here=$(cd "$(dirname "$0")" && pwd)
repo=$(cd "$here/../.." && pwd)

usage() {
  cat <<END
usage: $0 [flags]
  -suite common|e2e|gateway|node|apiserver|all   which suite (default all: all but node, apiserver)
  -server PATH      binary to put in etcd's place (default: built from this repo)
  -run REGEXP       other tests than the suite's selection
  -long             the tests that take long, too
  -exclusions FILE  tests that may fail, and are not run (default exclusions.txt)
  -all              run the excluded tests, too
  -timeout D        limit for each suite (default 30m)
  -v                print what the tests print, while they run
END
  exit 2
}

suite=all server= selection= exclusions=$here/exclusions.txt all= timeout=30m verbose= long=
while [ $# -gt 0 ]; do
  case $1 in
    -suite) suite=$2; shift ;;
    -server) server=$2; shift ;;
    -run) selection=$2; shift ;;
    -exclusions) exclusions=$2; shift ;;
    -timeout) timeout=$2; shift ;;
    -all) all=1 ;;
    -long) long=1 ;;
    -v) verbose=1 ;;
    *) usage ;;
  esac
  shift
done
case $suite in common|e2e|gateway|node|apiserver|all) ;; *) usage ;; esac

cache=${XDG_CACHE_HOME:-$HOME/.cache}/leasehold-outside/$version
mkdir -p "$cache"
# One run at a time: the suites may share ports, and they wait with time limits.
exec 9>"$cache/lock"
flock 9

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
say() { echo "outside: $*" >&2; }

# build fills the cache with etcd's own client and test binaries. They come from
# a module of their own, since etcd's server must not be among our dependencies.
build() {
  [ -e "$cache/complete-as-is" ] && return
  say "building etcdctl, etcdutl and the tests of etcd $version in $cache"
  (
    cd "$cache"
    rm -rf tests go.mod go.sum
    go mod init outside
    go get go.etcd.io/etcd/{etcdctl,etcdutl,tests}/v3@$version
    cp -r "$(go list -mod=mod -m -f '{{.Dir}}' go.etcd.io/etcd/tests/v3)" tests
    chmod -R u+w tests # a copy to run in: they leave files there
    go build -mod=mod -o bin/etcdctl go.etcd.io/etcd/etcdctl/v3
    go build -mod=mod -o bin/etcdutl go.etcd.io/etcd/etcdutl/v3
    go test -mod=mod -tags e2e -c -o common.test go.etcd.io/etcd/tests/v3/common
    go test -mod=mod -c -o e2e.test go.etcd.io/etcd/tests/v3/e2e
    touch complete-as-is
  ) >&2
}

place_server() {
  mkdir -p "$work/bin"
  if [ -n "$server" ]; then
    cp "$server" "$work/bin/etcd"
  else
    say "building leasehold"
    (cd "$repo" && go build -o "$work/bin/etcd" ./cmd/leasehold)
  fi
  (cd "$repo" && go build -o "$work/verdict" ./test/outside/verdict)
}

# build_apiserver fills the cache with the tests of the API server's storage, with our testserver in
# place of the package that embeds etcd.
build_apiserver() {
  cmp -s "$here/testserver.go.txt" "$cache/complete" && return
  say "building the storage tests of Kubernetes' API server $kubernetes in $cache"
  local source package
  source=$(go mod download -json k8s.io/apiserver@$kubernetes | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
  rm -rf "$cache/apiserver" "$cache/tests"
  cp -r "$source" "$cache/apiserver"
  chmod -R u+w "$cache/apiserver"
  cp "$here/testserver.go.txt" "$cache/apiserver/pkg/storage/etcd3/testserver/test_server.go"
  mkdir "$cache/tests"
  for package in etcd3 cacher storagebackend/factory; do
    go -C "$cache/apiserver" test -vet=off -c -o "$cache/${package##*/}.test" "./pkg/storage/$package" >&2
    ln -s "$cache/apiserver/pkg/storage/$package" "$cache/tests/"
  done
  cp "$here/testserver.go.txt" "$cache/complete"
}

# isolated runs a command in a network of its own, where only loopback exists and
# every port is free: the suites use fixed ports, which another process may hold.
# Where the kernel does not allow that, it runs it in ours.
isolated() {
  if unshare -n ip link set lo up 2>/dev/null; then
    unshare -n sh -c 'ip link set lo up && exec "$@"' isolated "$@"
  elif unshare -rn ip link set lo up 2>/dev/null; then
    unshare -rn sh -c 'ip link set lo up && exec "$@"' isolated "$@"
  else
    "$@"
  fi
}

# run_go_suite NAME DEFAULT-SELECTION LONG-TESTS
run_go_suite() {
  local name=$1 run=${selection:-$2} skip=
  [ -n "$all" ] || skip=$("$work/verdict" -skip -suite "$name" -exclusions "$exclusions")
  [ -n "$long$selection" ] || skip=${skip:+$skip|}^\($3\)$
  local args=(-test.v -test.timeout "$timeout" -test.run "$run" "${flags[@]}")
  [ -z "$skip" ] || args+=(-test.skip "$skip")
  say "suite $name: $name.test -test.run '$run'"
  run_tests "$name" "${args[@]}"
  retry "$name"
  judge "$name"
}

# retry NAME runs each of a few failed tests again, alone, up to twice.
retry() {
  local name=$1 failed test n
  failed=$("$work/verdict" -failed -suite "$name" -exclusions "$exclusions" < "$work/$name.log")
  for test in $failed; do
    cp "$work/$name.log" "$cache/$name.retried.log"
    for n in 1 2; do
      say "suite $name: retrying $test ($n of 2)"
      run_tests "$name" -test.v -test.timeout "$timeout" -test.run "^$test\$" "${flags[@]}"
      "$work/verdict" -failed -suite "$name" -exclusions "$exclusions" < "$work/$name.log" |
        grep -qx "$test" && continue
      echo "FLAKY: $name.$test ($n of $((n + 1)) runs failed)"
      break
    done
  done
}

# run_tests NAME FLAG... adds what the suite's test binary prints to the suite's log.
run_tests() {
  local name=$1
  shift
  # What the binary exits with adds nothing: a failure is in its lines, and a
  # crash leaves a test that did not end.
  (
    cd "$cache/tests/$name"
    export E2E_TEST_MINIMAL=true TMPDIR=$work
    # As in etcd nothing is compacted, so that tests of a full quota find it full.
    export ETCD_AUTO_COMPACTION_RETENTION=0
    # Nor is a password too short.
    export ETCD_MIN_PASSWORD_LENGTH=0
    isolated "$cache/$name.test" "$@" 2>&1 || true
  ) | tee -a "$work/$name.log" | if [ -n "$verbose" ]; then cat; else progress; fi
}

# progress shows each top-level test that passes as it comes. Those that fail are in the verdict:
# some of them are run again first.
progress() { grep --line-buffered -aoE '^--- (PASS|SKIP): .*' || true; }

judge() {
  local log=$work/$1.log
  if "$work/verdict" -suite "$1" -exclusions "$exclusions" < "$log" > "$work/$1.verdict"; then
    cat "$work/$1.verdict"
    return
  fi
  cp "$log" "$cache/$1.failed.log"
  cat "$work/$1.verdict"
  grep -q '^=== RUN' "$log" || tail -n 20 "$log"
  say "the whole log is in $cache/$1.failed.log"
  failed=1
}

# install_debian installs packages of Debian that are missing.
install_debian() {
  dpkg -s "$@" >/dev/null 2>&1 && return
  local sudo=
  [ "$(id -u)" = 0 ] || sudo=sudo
  $sudo apt-get update -qq
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
}

# run_client_suite NAME COMMAND...: what a package in another language does with the server.
run_client_suite() {
  local name=$1
  shift
  say "suite $name: $*"
  { isolated "$here/serve.sh" "$work/bin/etcd" "$@" 2>&1 || true; } | tee "$work/$name.log" |
    if [ -n "$verbose" ]; then cat; else progress; fi
  judge "$name"
}

failed=
place_server
flags=(-bin-dir "$work/bin") # of a suite's test binary
case $suite in common|e2e|all)
  build
  cp "$cache/bin/etcdctl" "$cache/bin/etcdutl" "$work/bin/" ;;
esac
# In tests/common each test runs with one member without TLS and with three that
# use TLS between them and to clients.
if [ "$suite" = common ] || [ "$suite" = all ]; then
  run_go_suite common . 'TestMemberAdd'
fi
# What is left out: what takes etcd's own files, logs, flags or releases to pieces.
e2e=(
  Lease Lock Elect CurlV3 V3Curl 'CtlV3(Watch|Member|ConsistentMemberList|MoveLeader)'
  MemberReplace RemoveNonExistingMember Reproduce20340 RuntimeReconfig ForceNewCluster
  'EtcdMultiPeer|EtcdUnixPeers|EtcdPeer|EtcdTLSVersion|ConnectionMultiplexing'
  'GracefulShutdown|HTTPHealth|HTTPLivez|V3Metrics|V3Learner'
  'Auth|CtlV3Role|LowPermissionUser'
  'TxnRangeConsistency|DeleteEventDrop|StartWatcherFromCompacted'
)
e2e_long=(
  TestCtlV3MemberAddAsLearnerWithOneMemberDown TestRuntimeReconfigGrowClusterSize
  TestForceNewCluster TestForceNewCluster_AddLearner_MemberCount
  'TestCurlV3_MaxStreams.*_(Medium|Large|TLS_.*)'
)
join() (IFS='|' && echo "$*")
if [ "$suite" = e2e ] || [ "$suite" = all ]; then
  run_go_suite e2e "$(join "${e2e[@]}")" "$(join "${e2e_long[@]}")"
fi
if [ "$suite" = gateway ] || [ "$suite" = all ]; then
  install_debian python3-etcd3gw python3-testtools python3-oslotest >&2
  # Debian's Python: the packages are installed for that one.
  run_client_suite gateway /usr/bin/python3 "$here/gateway.py"
fi
if [ "$suite" = node ]; then
  [ -e "$cache/node/node_modules/etcd3" ] ||
    npm install --silent --no-fund --no-audit --prefix "$cache/node" etcd3@$etcd3 >&2
  run_client_suite node env NODE_PATH="$cache/node/node_modules" node "$here/node.cjs"
fi
if [ "$suite" = apiserver ]; then
  cache=${cache%/*}/apiserver-$kubernetes
  mkdir -p "$cache"
  build_apiserver
  flags=()
  export LEASEHOLD_BINARY=$work/bin/etcd
  for name in etcd3 cacher factory; do
    run_go_suite $name . none
  done
fi
[ -z "$failed" ] || exit 1
