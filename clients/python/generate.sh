#!/bin/bash
# Generates src/leasehold/v1 from api/leasehold/v1. The compiler is old on purpose: what it generates
# runs with every protobuf from its own version on, up to the next major version but one.
#
#   pip install grpcio-tools==1.75.1 && ./generate.sh
set -euo pipefail
cd "$(dirname "$0")"
protos=$(mktemp -d)
trap 'rm -rf "$protos"' EXIT
../protos.sh "$protos"
python3 -m grpc_tools.protoc -I "$protos" --python_out=src --pyi_out=src "$protos"/leasehold/v1/*.proto
touch src/leasehold/v1/__init__.py
