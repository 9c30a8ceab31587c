#!/bin/sh
set -e
if command -v systemd-sysusers >/dev/null; then
  systemd-sysusers leasehold.conf
elif ! getent passwd leasehold >/dev/null; then
  useradd --system --user-group --home-dir /var/lib/leasehold --no-create-home \
    --shell /usr/sbin/nologin leasehold
fi
mkdir -p /var/lib/leasehold
chown leasehold:leasehold /var/lib/leasehold
chmod 700 /var/lib/leasehold
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  # An upgrade restarts a running member. Start a new one by hand, after setting it up.
  systemctl try-restart leasehold.service || true
fi
