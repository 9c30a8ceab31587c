#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
fi
# The data stay, even after a purge: they may be the only copy of a cluster.
