#!/bin/bash
# Builds Kubernetes' API server from its module, once, and prints the path of the binary.
set -euo pipefail

version=1.37.2
dir=${XDG_CACHE_HOME:-$HOME/.cache}/leasehold-outside/kubernetes-$version
mkdir -p "$dir"
cd "$dir"
exec 9>lock
flock 9
if [ ! -e kube-apiserver ]; then
  rm -f go.mod go.sum
  go mod init apiserver
  # Kubernetes' go.mod replaces its libraries by directories of its repository.
  mod=$(go mod download -json k8s.io/kubernetes@v$version | sed -n 's/^\t"GoMod": "\(.*\)",$/\1/p')
  for library in $(sed -n 's|^\t\(k8s.io/[a-z-]*\) => ./staging.*|\1|p' "$mod"); do
    go mod edit -replace "$library=$library@v0.${version#1.}"
  done
  go get k8s.io/kubernetes/cmd/kube-apiserver@v$version
  go build -mod=mod -trimpath -o kube-apiserver.new k8s.io/kubernetes/cmd/kube-apiserver
  mv kube-apiserver.new kube-apiserver
fi >&2
echo "$dir/kube-apiserver"
