#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Clean pages of files, on a kernel that has cleancache: reading a file larger than memory a second
# time reads fewer sectors, and what is read is right after overwriting, truncating and mounting
# again.
. "$(dirname "$0")/../lib/case.sh"
command -v mkfs.ext4 > /dev/null || skip 'mkfs.ext4 is not installed'
flavour=${1:-small}
need "$flavour"

cat > "$vm_work/guest.sh" <<'EOS'
tmem_load || exit 1
mount -t ext4 /dev/vda /mnt || exit 1
sum() { md5sum < "$1" | cut -c1-32; }
drop() { sync; echo 1 > /proc/sys/vm/drop_caches; }
# Reads twice; the sums and the sectors of both.
twice() {
	a=$(sectors_read vda); first=$(sum "$1"); b=$(sectors_read vda)
	[ "${2:-}" != drop ] || drop
	second=$(sum "$1"); c=$(sectors_read vda)
	say $3_first=$((b - a)) $3_second=$((c - b))
	[ "$first" = "$second" ] || { echo "$1: $first, then $second"; exit 1; }
}
dd if=/mnt/seed of=/mnt/big bs=1M count=1 2>/dev/null
for i in $(seq 1 89); do dd if=/mnt/seed of=/mnt/big bs=1M seek=$i count=1 conv=notrunc 2>/dev/null; done
drop
twice /mnt/big keep big
# Few enough to be in a ring all at once when they are dropped.
dd if=/mnt/seed of=/mnt/small bs=4096 count=200 2>/dev/null
drop
sleep 1
twice /mnt/small drop small
# The same bytes come from the page cache, from the host and from the disk.
for round in 1 2 3; do
	dd if=/dev/urandom of=/mnt/small bs=4096 count=$((100 * round)) seek=$((37 * round)) \
		conv=notrunc 2>/dev/null
	cached=$(sum /mnt/small); drop; host=$(sum /mnt/small); drop
	umount /mnt; mount -t ext4 /dev/vda /mnt || exit 1
	disk=$(sum /mnt/small)
	[ "$cached" = "$host" ] && [ "$cached" = "$disk" ] ||
		{ echo "overwritten: cached $cached host $host disk $disk"; exit 1; }
done
# A truncated file that grows again has zeros there, not its former pages.
drop; sum /mnt/small > /dev/null; drop
truncate -s 40960 /mnt/small; truncate -s 8388608 /mnt/small
cached=$(sum /mnt/small); drop; host=$(sum /mnt/small)
umount /mnt; mount -t ext4 /dev/vda /mnt || exit 1
disk=$(sum /mnt/small)
zeros=$(dd if=/mnt/small bs=4096 skip=10 2>/dev/null | tr -d '\0' | wc -c)
[ "$zeros" = 0 ] && [ "$cached" = "$host" ] && [ "$cached" = "$disk" ] ||
	{ echo "truncated: cached $cached host $host disk $disk, $zeros bytes not zero"; exit 1; }
say coherent=yes
umount /mnt
wait_for_host
EOS
check 'no image' guest_image "$flavour" "$vm_work/guest.img" "$vm_work/guest.sh"
mkdir "$vm_work/files"
# Half of it shrinks.
{ head -c 4194304 /dev/urandom; head -c 4194304 /dev/zero | tr '\0' 'x'; } > "$vm_work/files/seed"
guest_disk "$vm_work/files.img" 256M
check 'no file system' mkfs.ext4 -q -b 4096 -F -d "$vm_work/files" "$vm_work/files.img"
host_setup 256M
host_client vm1 region=4M rings=2
check 'tmemd does not start' tmemd_start
guest_start vm1 "$flavour" 80 2 "$vm_work/guest.img" \
	$(guest_drive "$vm_work/files.img") $(guest_tmem "$vm_work/vm1.sock" 2)
check 'the guest did not finish' guest_wait_for vm1 'coherent=yes' 120
check 'pages stay at the host after the file system was unmounted' \
	host_wait_stat vm1 pages_ephemeral -eq 0 10
guest_say vm1 end
check 'the guest failed' guest_wait_end vm1 30
note "file larger than memory: $(guest_value vm1 big_first), then $(guest_value vm1 big_second)" \
	"sectors; small file: $(guest_value vm1 small_first), then $(guest_value vm1 small_second)"
note "$(guest_value vm1 cache_hits) hits of $(guest_value vm1 cache_gets)," \
	"$(guest_value vm1 cache_puts_dropped) of $(guest_value vm1 cache_puts) puts dropped," \
	"$(guest_value vm1 cache_renewals) renewals"
for file in big small; do
	[ "$(guest_value vm1 ${file}_second)" -lt $(($(guest_value vm1 ${file}_first) * 3 / 4)) ] ||
		fail "the second reading of the $file file read hardly fewer sectors"
done
