#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# `tmemctl doctor --guest` in a real guest: it finds what is wrong while it is wrong, and nothing of
# it when it is put right. (Stock 5.10 has no zswap: what is said of that, tests/cli/doctor.bats shows.)
. "$(dirname "$0")/../lib/case.sh"
. "$vm_src/lib/inner.sh"
need stock
modules=$(kernel_modules stock lzo-rle zram)
[ -n "$modules" ] || skip 'the kernel has no module zram'

cat > "$vm_work/guest.sh" <<'EOS'
# What the doctor finds, without its notes. Its status says whether there is something.
doctor() {
	tmemctl doctor --guest --json > /tmp/findings
	status=$?
	ids=$(tr -d ' \n' < /tmp/findings | tr '{' '\n' | grep -v '"severity":"note"' |
		sed -n 's/.*"id":"\([^"]*\)".*/\1/p' | sort | tr '\n' ,)
	say "$1=$status,$ids"
}
for module in /lzo-rle.ko /zsmalloc.ko /zram.ko; do insmod "$module" || exit 1; done
doctor unloaded
tmem_load || exit 1
doctor swapless
swap_on vda || exit 1
doctor right
echo 64M > /sys/block/zram0/disksize && mkswap /dev/zram0 > /dev/null &&
	swapoff /dev/vda && swapon /dev/zram0 && swapon /dev/vda || exit 1
doctor doubled
tmemctl doctor --guest
swapoff /dev/zram0 || exit 1
doctor mended
EOS
# shellcheck disable=SC2086 # paths without spaces
check 'no image' guest_image stock "$vm_work/guest.img" "$vm_work/guest.sh" $modules
check 'no programs' inner_programs "$vm_work/guest.img" "$TMEMCTL"
guest_disk "$vm_work/swap.img" 256M
host_setup 64M
host_client vm1 region=2M rings=1
check 'tmemd does not start' tmemd_start
guest_start vm1 stock 192 1 "$vm_work/guest.img" \
	$(guest_drive "$vm_work/swap.img") $(guest_tmem "$vm_work/vm1.sock" 1)
check 'the guest failed' guest_wait_end vm1 120

# finds KEY VALUE: the exit status and what was found
finds()
{
	[ "$(guest_value vm1 "$1")" = "$2" ] || fail "$1: found $(guest_value vm1 "$1"), not $2"
}
finds unloaded 1,no-module,no-swap,
finds swapless 1,no-swap,
finds right 0,
finds doubled 1,zram-first,
finds mended 0,
grep -aq '/dev/zram0.*priority' "$vm_work/vm1.log" || fail 'the text does not name the zram disk'
note "found: $(guest_value vm1 unloaded) $(guest_value vm1 swapless) $(guest_value vm1 doubled)"
