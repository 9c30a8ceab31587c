#!/bin/bash
# Writes the messages that clients need to a directory: those of leasehold.v1, without the options that
# are for servers and gateways, and so without their imports.
#
#   protos.sh DIRECTORY
set -euo pipefail
from=$(cd "$(dirname "$0")/../api/leasehold/v1" && pwd)
mkdir -p "$1/leasehold/v1"
for name in leases store stream; do
  sed -E \
    -e '/^import "(google\/api\/annotations|leasehold\/v1\/needs)\.proto";$/d' \
    -e '/^service /,/^}/d' \
    -e '/^option go_package/d' \
    -e 's/ \[\(request_needs\) = [A-Z_]+\]//' \
    "$from/$name.proto" > "$1/leasehold/v1/$name.proto"
done
