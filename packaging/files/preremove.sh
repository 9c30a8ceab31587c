#!/bin/sh
set -e
# Debian passes "remove", and RPM 0, when the package is removed; other values mean an upgrade.
if [ "$1" = remove ] || [ "$1" = 0 ]; then
  if [ -d /run/systemd/system ]; then
    systemctl disable --now leasehold.service || true
  fi
fi
