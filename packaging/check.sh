#!/bin/bash
# Tests the packages, as root on Debian: check.sh DIST. It installs the package, runs its unit's
# command line as its user, uses it, and purges it; verifies the unit with systemd; and runs the
# image's files in a read-only chroot.
set -euo pipefail
dist=$(realpath "$1")
deb=$(ls "$dist"/leasehold_*_"$(dpkg --print-architecture)".deb)
image=${deb%.deb}.image.tar
licences=$dist/leasehold-linux-$(dpkg --print-architecture).licenses.txt
at=usr/share/doc/leasehold/third-party-licenses.txt
work=$(mktemp -d)
chmod 755 "$work"
pid=
installed=
finish() {
  if [ -n "$pid" ]; then
    kill "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true # what it holds cannot be unmounted
  fi
  if mountpoint -q "$work/root/var/lib/leasehold"; then umount "$work/root/var/lib/leasehold"; fi
  if mountpoint -q "$work/root"; then umount "$work/root"; fi
  if [ -n "$installed" ]; then
    dpkg --purge leasehold >/dev/null || true
    userdel leasehold 2>/dev/null || true
    rm -rf /var/lib/leasehold
  fi
  rm -rf "$work"
}
trap finish EXIT
fail() { echo "check.sh: $*" >&2; exit 1; }

# up waits until a member at port $1 answers; the process must still be there.
up() {
  for _ in $(seq 300); do
    leasehold --endpoints "127.0.0.1:$1" endpoint health >/dev/null 2>&1 && return
    kill -0 "$pid" 2>/dev/null || { cat "$work/log"; fail "the member ended"; }
    sleep 0.2
  done
  cat "$work/log"
  fail "the member does not serve"
}

# logged waits until the member's log has a line that matches $1.
logged() {
  for _ in $(seq 300); do
    grep -q "$1" "$work/log" && return
    kill -0 "$pid" 2>/dev/null || { cat "$work/log"; fail "the member ended"; }
    sleep 0.2
  done
  cat "$work/log"
  fail "the log has no line that matches: $1"
}

# The script removes only its own data at the end: data stay after a purge, and may be in use.
dpkg -s leasehold >/dev/null 2>&1 && fail "a package leasehold is installed already"
for path in /var/lib/leasehold /etc/leasehold; do
  [ ! -e "$path" ] || fail "$path is there already; move it away first"
done
! id leasehold >/dev/null 2>&1 || fail "there is a user leasehold already; userdel leasehold first"
installed=1
dpkg -i "$deb" >/dev/null
id leasehold >/dev/null || fail "no user"
[ "$(stat -c %U:%a /var/lib/leasehold)" = leasehold:700 ] || fail "the data directory is another's"
leasehold config check /etc/leasehold/leasehold.yaml
# Images of Debian leave manual pages out when they install, so this looks into the package. The
# page is read to its end: grep -q would break the pipe while tar still writes, and fail with it.
dpkg-deb --fsys-tarfile "$deb" | tar -xO ./usr/share/man/man1/leasehold-serve.1 |
  grep 'config.*file' >/dev/null || fail "no manual page of serve"
dpkg-deb --fsys-tarfile "$deb" | tar -xO "./$at" | cmp - "$licences" ||
  fail "not the licences: $deb"
# There is no rpm here. The header of the package has the name and the SHA-256 of each file.
for text in "${at##*/}" "$(sha256sum < "$licences" | cut -d ' ' -f 1)"; do
  grep -aqF "$text" "${deb%.deb}.rpm" || fail "not the licences: ${deb%.deb}.rpm"
done
bash -c '. /usr/share/bash-completion/completions/leasehold && complete -p leasehold' >/dev/null ||
  fail "the completion is not bash's"

unit=/usr/lib/systemd/system/leasehold.service
systemd-analyze verify "$unit"
systemd-analyze security --offline=true --threshold=20 "$unit" | tail -1

# The command line of the unit, except for the ports, which may be in use here.
sed -n 's/^ExecStart=//p' "$unit" > "$work/start"
read -r -a start < "$work/start"
cd /var/lib/leasehold
setpriv --reuid leasehold --regid leasehold --clear-groups --no-new-privs --bounding-set=-all \
  "${start[@]}" --listen-client-urls http://127.0.0.1:12379 \
  --listen-peer-urls http://127.0.0.1:12380 2> "$work/log" &
pid=$!
up 12379
leasehold --endpoints 127.0.0.1:12379 put a 1 >/dev/null
[ "$(leasehold --endpoints 127.0.0.1:12379 get a --print-value-only)" = 1 ] || fail "no value"
sed -i 's/^log-level: info/log-level: debug/' /etc/leasehold/leasehold.yaml
kill -HUP "$pid"
logged '"reloaded the configuration file".*"changed":"log-level=debug"'
kill -TERM "$pid"
wait "$pid" || fail "the member ended with $?"
pid=
cd "$work"
cp /usr/bin/leasehold "$work/leasehold"
dpkg --purge leasehold >/dev/null
installed=
[ -d /var/lib/leasehold ] || fail "the data went with the package"
rm -rf /var/lib/leasehold
userdel leasehold
[ ! -e /etc/leasehold/leasehold.yaml ] || fail "the settings outlive a purge"

# The image: the contents of its layers, on a read-only root.
mkdir "$work/image" "$work/root" "$work/files"
tar -xf "$image" -C "$work/image"
for layer in "$work"/image/*.tar.gz; do tar -xzpf "$layer" -C "$work/files"; done
cmp "$work/files/$at" "$licences" || fail "not the licences: $image"
mount --bind "$work/files" "$work/root"
mkdir "$work/data"
chown 65532:65532 "$work/data"
mount --bind "$work/data" "$work/root/var/lib/leasehold"
mount -o remount,bind,ro "$work/root"
leasehold() { "$work/leasehold" "$@"; }
chroot --userspec 65532:65532 "$work/root" /usr/bin/leasehold serve --data-dir=/var/lib/leasehold \
  --listen-client-urls=http://127.0.0.1:13379 --listen-peer-urls=http://127.0.0.1:13380 \
  2> "$work/log" &
pid=$!
up 13379
leasehold --endpoints 127.0.0.1:13379 put b 2 >/dev/null
[ "$(leasehold --endpoints 127.0.0.1:13379 get b --print-value-only)" = 2 ] || fail "no value"
kill -TERM "$pid"
wait "$pid" || fail "the member of the image ended with $?"
pid=
echo "check.sh: the package and the image work"
