#!/bin/bash
# Generates src/v1 from api/leasehold/v1. It needs protoc, and npm ci before.
set -euo pipefail
cd "$(dirname "$0")"
protos=$(mktemp -d)
trap 'rm -rf "$protos"' EXIT
../protos.sh "$protos"
rm -rf src/v1 && mkdir src/v1
${PROTOC:-protoc} -I "$protos" --plugin=node_modules/.bin/protoc-gen-es \
  --es_out=src/v1 --es_opt=target=ts,import_extension=js "$protos"/leasehold/v1/*.proto
mv src/v1/leasehold/v1/* src/v1/ && rm -r src/v1/leasehold
