#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A file system on a disk of tmemd: mkfs.ext4, files written and read by fio, which verifies them,
# fsck; the same after the guest is gone and another one has the disk, and after a restart of tmemd.
. "$(dirname "$0")/../lib/case.sh"
. "$vm_src/lib/inner.sh"
need debian12
for tool in mke2fs e2fsck fio; do
	command -v $tool > /dev/null || skip "$tool is not installed"
done

cat > "$vm_work/functions" <<'EOS'
for module in /crc16.ko /crc32c_generic.ko /libcrc32c.ko /mbcache.ko /jbd2.ko /ext4.ko; do
	[ ! -f $module ] || insmod $module || exit 1
done

# The shell has a mke2fs of its own that makes ext2: paths.
mount_it() { mount -t ext4 -o discard /dev/vda /mnt; }
run_fio()
{
	fio --name=files --directory=/mnt --size=12M --nrfiles=3 --rw=randwrite --bsrange=1k-64k \
		--ioengine=psync --numjobs=2 --verify=crc32c --do_verify=1 --fallocate=none \
		--thread --randseed=7 --buffer_compress_percentage=50 --refill_buffers "$@" > /tmp/fio.log 2>&1 ||
		{ cat /tmp/fio.log; return 1; }
}
check_it() { umount /mnt; /bin/e2fsck -f -n /dev/vda; }
EOS
cat "$vm_work/functions" - > "$vm_work/first.sh" <<'EOS'
/bin/mke2fs -q -t ext4 /dev/vda && mount_it || exit 1
run_fio || exit 1
say used=$(df -k /mnt | awk 'END { print $3 }')
check_it
EOS
cat "$vm_work/functions" - > "$vm_work/second.sh" <<'EOS'
/bin/e2fsck -f -n /dev/vda && mount_it || exit 1
run_fio --verify_only || exit 1
# Blocks are free once their removal is in the journal, and only those can be trimmed.
rm -r /mnt/files* && sync && fstrim /mnt || exit 1
check_it
EOS
# shellcheck disable=SC2046 # paths without spaces
for part in first second; do
	check 'no image' guest_image debian12 "$vm_work/$part.img" "$vm_work/$part.sh" \
		$(kernel_modules debian12 crc32c_generic ext4)
	check 'no programs' inner_programs "$vm_work/$part.img" mke2fs e2fsck fio
done
host_setup 256M
host_disk d1 size=128M
check 'tmemd does not start' tmemd_start
guest_start one debian12 448 1 "$vm_work/first.img" $(guest_vhost 448 "$vm_work/d1.sock")
check 'the first guest failed' guest_wait_end one 300
written=$(host_stat d1 pages_persistent)
[ "$written" -gt 5000 ] || fail "only $written pages are on the disk"
tmemd_kill
check 'no start after the kill' tmemd_start
guest_start two debian12 448 1 "$vm_work/second.img" $(guest_vhost 448 "$vm_work/d1.sock,packed=on")
check 'the second guest failed' guest_wait_end two 300
left=$(host_stat d1 pages_persistent)
[ "$left" -lt $((written / 3)) ] || fail "$left of $written pages are left after fstrim"
[ "$(host_stat d1 disk_errors)" = 0 ] || fail 'requests failed'
note "$written pages of files, $left after they were removed"
