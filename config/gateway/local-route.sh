#!/bin/sh
# Leads connections of sandboxes to the doors by a local route: the machine takes every address for its own, on the way in from them alone,
# so that the proxy listens at the very ports that are dialled and sees the address that was dialled. After walls.nft:
#
#   ./local-route.sh br-sandboxes        # or several interfaces
#
# with  listen: { transparent: { tls: "[::]:443", http: "[::]:80" } }. A listener of this machine at `0.0.0.0` or `::` would be reached at
# every address: walls.nft keeps sandboxes from all ports but those of the doors. Running it again changes nothing.
set -eu

# Asked who has an address, the machine answers for its own alone: on a bridge it would speak for other sandboxes otherwise.
for device in "$@"; do echo 1 > "/proc/sys/net/ipv4/conf/$device/arp_ignore"; done

for family in -4 -6; do
  # Everyone but the sandboxes sees the table `local` without its last entry, which is for every address.
  while ip "$family" rule del pref 1 2> /dev/null; do :; done
  while ip "$family" rule del pref 2 2> /dev/null; do :; done
  ip "$family" rule add pref 1 lookup local suppress_prefixlength 0
  for device in "$@"; do ip "$family" rule add pref 2 iif "$device" lookup local; done
  ip "$family" rule del pref 0 2> /dev/null || true
  ip "$family" route replace local default dev lo table local
done
