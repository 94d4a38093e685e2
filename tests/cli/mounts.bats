# SPDX-License-Identifier: GPL-2.0-or-later
# The arena's mount has no room, no inode, or is read-only: tmemd says so, or serves what it can.

load lib

# A mount of its own for the arena, with these options; "$SHM/mnt".
mount_arena()
{
	[ "$(id -u)" -eq 0 ] || skip "not root"
	mkdir "$SHM/mnt"
	mount -t tmpfs -o "mode=0700,$1" tmemd-test "$SHM/mnt" || skip "mounting is not permitted here"
	write_conf
	sed -i "s,$SHM/arena,$SHM/mnt/arena," "$CONF"
	printf '[front]\nregions = %s/regions\n' "$SHM" >>"$CONF"
}

teardown_mount()
{
	umount -l "$SHM/mnt" 2>/dev/null || true
}

teardown()
{
	[[ -z $PID ]] || kill -KILL "$PID" 2>/dev/null || true
	teardown_mount
	rm -rf "$DIR" "$SHM"
}

refused_with()
{
	run timeout 20 "$TMEMD" --config "$CONF"
	[ "$status" -ne 0 ]
	[ "$status" -lt 124 ]
	says "$1"
	[ ! -e "$SHM/mnt/arena.new" ]
}

@test "a mount that is full from the start; with room again tmemd starts" {
	mount_arena size=64M
	dd if=/dev/zero of="$SHM/mnt/other" bs=1M status=none 2>/dev/null || true
	refused_with "No space left on device"
	[ ! -e "$SHM/mnt/arena" ]
	rm "$SHM/mnt/other"
	start_tmemd
	stop_tmemd
}

@test "a mount too small for the pool, and one that fills while tmemd serves" {
	mount_arena size=48M
	start_tmemd
	dd if=/dev/zero of="$SHM/mnt/other" bs=1M status=none 2>/dev/null || true
	ctl list
	ctl reclaim 2M --timeout 2 || true
	stop_tmemd
	# Not a byte is free, and the arena is whole.
	start_tmemd
	ctl stat vm1 >/dev/null
	stop_tmemd
}

@test "a mount without inodes" {
	mount_arena size=64M,nr_inodes=2
	touch "$SHM/mnt/other"
	refused_with "No space left on device"
	rm "$SHM/mnt/other"
	start_tmemd
	stop_tmemd
}

@test "a mount that is read-only: the arena on it is left as it is" {
	mount_arena size=64M
	start_tmemd
	stop_tmemd
	before=$(head -c 1M "$SHM/mnt/arena" | sha256sum)
	mount -o remount,ro "$SHM/mnt"
	refused_with "Read-only file system"
	[ "$(head -c 1M "$SHM/mnt/arena" | sha256sum)" = "$before" ]
	mount -o remount,rw "$SHM/mnt"
	start_tmemd
	stop_tmemd
}
