#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The device of the guest's module: a guest without it sees the PCI device, and tmemd the machine;
# taken out of a running machine and put in again.
. "$(dirname "$0")/../lib.sh"
cat > "$vm_work/guest.sh" <<'EOS'
devices() { cat /sys/bus/pci/devices/*/device | grep -c 0x1110; }
say ring=$(devices)
until [ "$(devices)" = 0 ]; do sleep 0.2; done
say gone=yes
until [ "$(devices)" = 1 ]; do sleep 0.2; done
say back=yes
EOS
check 'no image' guest_image debian12 "$vm_work/guest.img" "$vm_work/guest.sh"
check 'libvirt does not start' libvirt_start
host_setup 256M
host_client vm1 region=2M rings=2 socket_owner=libvirt-qemu
check 'tmemd does not start' tmemd_start
check 'the machine cannot be defined' domain_define vm1 96
before=$(virsh dumpxml vm1)
check 'no such client' says 'tmemd has no client web' host_tmemctl attach $URI vm1 --ring --name web
check 'attach' host_tmemctl attach $URI vm1 --ring > /dev/null
check 'the machine does not start' domain_start vm1
check 'no ring' guest_wait_for vm1 'ring=1' 60
host_tmemctl list --json | jq -e '.clients[0].state == "attached"' > /dev/null ||
	fail 'tmemd does not see the machine'
check 'detach' host_tmemctl detach $URI vm1 --ring --live --config > /dev/null
check 'the guest still has it' guest_wait_for vm1 'gone=yes' 30
[ "$(virsh dumpxml vm1 --inactive)" = "$before" ] || fail 'detaching leaves something'
check 'hot attach' host_tmemctl attach $URI vm1 --ring > /dev/null
check 'the guest failed' guest_wait_end vm1 60
