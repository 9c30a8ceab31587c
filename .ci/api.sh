#!/bin/bash
# Checks the .proto files of leasehold.v1 with buf: the names follow its STANDARD rules, and nothing has
# changed that breaks a client of the frozen version, api/frozen.binpb. Needs protoc and buf on the PATH.
#
#   .ci/api.sh           checks
#   .ci/api.sh freeze    writes api/frozen.binpb, at a release
set -euo pipefail
cd "$(dirname "$0")/../api"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
go run ../internal/api/etcd/protodesc "$work/imports.binpb"
protoc --descriptor_set_in="$work/imports.binpb" -I=. --include_imports -o "$work/api.binpb" leasehold/v1/*.proto
if [ "${1-}" = freeze ]; then
  cp "$work/api.binpb" frozen.binpb
  exit
fi
buf lint "$work/api.binpb" --config buf.yaml --path leasehold
buf breaking "$work/api.binpb" --against frozen.binpb --config buf.yaml --path leasehold
