#!/bin/sh
set -e
# Debian says "remove", RPM 0, when the package goes for good; an upgrade goes on.
if [ "$1" = remove ] || [ "$1" = 0 ]; then
  if [ -d /run/systemd/system ]; then
    systemctl disable --now leasehold.service || true
  fi
fi
