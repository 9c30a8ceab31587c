# Shared by .ci/run and .ci/campaign, which source it from the top of the repository.

export GOFLAGS=-mod=readonly
tool() { go tool -modfile=tools/go.mod "$@"; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=()

# run prints a command, runs it, and remembers a failure. Its output is also kept in $work/output.txt.
run() {
  local began=$SECONDS code=0
  printf '\n+ %s\n' "$*"
  "$@" 2>&1 | tee -a "$work/output.txt"
  code=${PIPESTATUS[0]}
  printf '  (%ds)\n' $((SECONDS - began))
  [ "$code" = 0 ] || failed+=("$*")
  return "$code"
}

# space shows the free disk space, and empties Go's build cache if there is too little: members on a
# full disk refuse writes, and their tests fail.
space() {
  local cache free least=$((16 << 20))
  cache=$(go env GOCACHE)
  mkdir -p "$cache"
  free=$(df --output=avail "$cache" | tail -1)
  [ "$free" -ge $least ] || go clean -cache
  df -h "$cache" "$work"
}

# debian installs the Debian packages that provide missing commands: debian COMMAND PACKAGE...
debian() {
  command -v "$1" >/dev/null && return
  shift
  packages "$@"
}

# packages installs Debian packages.
packages() {
  apt-get update -qq &&
    env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
}

# page runs the browser tests of the page: page [flags of the test binary].
page() {
  debian chromium chromium libnss3-tools || return
  go -C test/page test -vet=off -count 1 -timeout 30m -v . -browser -pictures "$(mktemp -d -p "$work")" "$@"
}

# frozen_api checks that the .proto files do not break clients of the frozen version.
frozen_api() {
  debian protoc protobuf-compiler && debian node nodejs npm || return
  npm install --silent --no-fund --no-audit --prefix "$work/buf" @bufbuild/buf@1.75.0 &&
    PATH=$work/buf/node_modules/.bin:$PATH .ci/api.sh
}

# check_python checks the Python client, in an environment of its own, and builds what is uploaded.
check_python() {
  local env=$work/python
  python3 -c 'import ensurepip' 2>/dev/null || packages python3 python3-venv || return
  go build -o "$work/leasehold" ./cmd/leasehold &&
    python3 -m venv "$env" &&
    "$env/bin/pip" install --quiet --disable-pip-version-check -e 'clients/python[test]' || return
  (
    cd clients/python
    "$env/bin/ruff" format --check . ../../conformance/drivers/python &&
      "$env/bin/ruff" check . ../../conformance/drivers/python &&
      "$env/bin/mypy" --cache-dir "$work/mypy" src tests ../../conformance/drivers/python/driver.py &&
      LEASEHOLD_BINARY=$work/leasehold "$env/bin/pytest" -q -p no:cacheprovider &&
      "$env/bin/python" -m build --outdir "$work" . > "$work/build.log" 2>&1 || { cat "$work/build.log"; false; }
  )
}

# check_node checks the Node client, and packs what is uploaded.
check_node() {
  debian node nodejs npm || return
  (
    cd clients/node
    npm ci --silent --no-fund --no-audit &&
      LEASEHOLD_BINARY=$work/leasehold npm test --silent &&
      npm pack --silent --pack-destination "$work"
  )
}

# conformance runs the suite in all languages, after their checks: conformance [flags].
conformance() {
  go run ./conformance -server "$work/leasehold" \
    -driver "python=$work/python/bin/python conformance/drivers/python/driver.py" \
    -driver "node=node conformance/drivers/node/driver.mjs" "$@"
}

# seed is what random steps begin with. It differs from day to day.
seed=$((10#$(date +%j)))
