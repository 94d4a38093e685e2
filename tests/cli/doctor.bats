# SPDX-License-Identifier: GPL-2.0-or-later
# tmemctl doctor: real services in deliberately bad configurations, and in a good one.

load lib

# The findings as "id", one a line; `doctored` is the JSON.
doctor()
{
	local status=0

	ctl doctor --json "$@" >"$DIR/doctored" || status=$?
	# Exit status 1 exactly when something is more than a note.
	[ "$status" -eq "$(json 'int(any(f["severity"] != "note" for f in d))' <"$DIR/doctored")" ]
	# Each says what to do.
	[ "$(json 'all(f["remedy"] and f["finding"] and f["subject"] for f in d)' <"$DIR/doctored")" = True ]
	json '"\n".join(f["id"] for f in d)' <"$DIR/doctored"
}

# finds ID [TEXT]: it is found, with this text in the sentence; finds_not ID.
finds()
{
	local said

	doctor "${root[@]}" >"$DIR/ids"
	grep -qx "$1" "$DIR/ids" || { echo "not found: $1"; cat "$DIR/ids"; return 1; }
	said=$(json "[f for f in d if f['id'] == '$1']" <"$DIR/doctored")
	[[ $said == *"${2:-}"* ]] || { echo "$said does not say: $2"; return 1; }
}

finds_not()
{
	doctor "${root[@]}" >"$DIR/ids"
	if grep -qx "$1" "$DIR/ids"; then
		echo "found: $(json "[f for f in d if f['id'] == '$1']" <"$DIR/doctored")"
		return 1
	fi
}

# A tmpfs of the arena's own: options of mount(8).
own_mount()
{
	[ "$(id -u)" -eq 0 ] || skip "not root"
	mount -t tmpfs -o "mode=0700,$1" tmemd-cli "$SHM" || skip "no tmpfs with $1 here"
}

teardown()
{
	if [[ -n $PID ]]; then
		kill -KILL "$PID" 2>/dev/null || true
		wait "$PID" 2>/dev/null || true
	fi
	[[ -z ${manager:-} ]] || kill "$manager" || true
	! mountpoint -q "$SHM" || umount -l "$SHM"
	[[ -z ${CGROUP:-} ]] || rmdir "$CGROUP"
	[[ ! -s $LOG ]] || cat "$LOG"
	rm -rf "$DIR" "$SHM"
}

# Starts tmemd behind a command: under TMEMD a script that runs it so.
start_under()
{
	printf '#!/bin/sh\nexec %s %s "$@"\n' "$*" "$TMEMD" >"$DIR/under"
	chmod +x "$DIR/under"
	TMEMD=$DIR/under start_tmemd
}

start_manager()
{
	"$PYTHON" "${srcdir:-.}/tests/cli/manager.py" "$DIR/notify" "$DIR/told" 3>&- &
	manager=$!
	for _ in $(seq 100); do
		[ -S "$DIR/notify" ] && break
		sleep 0.05
	done
}

with_systemd()
{
	ldd "$TMEMD" | grep -q libsystemd || skip "built without libsystemd"
}

@test "a host with nothing wrong" {
	ldd "$TMEMD" | grep -qE 'lib[at]san' && skip "the sanitizers change what is locked and filtered"
	with_systemd
	own_mount size=192M,huge=advise
	write_conf
	sed -i 's/host_reserve = 0/host_reserve = 1M/' "$CONF"
	printf '[service]\nuser = nobody\n' >>"$CONF"
	chmod 755 "$DIR"
	chown nobody "$SHM" "$DIR"
	start_manager
	NOTIFY_SOCKET=$DIR/notify FDSTORE=8192 start_tmemd
	# What the machine denies to root is rightly found; nothing else, but that vm1 has no VM.
	allowed='client-never'
	log_says "IO_FLUSHER cannot be set" && allowed+='|io-flusher'
	log_says "oom_score_adj cannot be set" && allowed+='|oom-score'
	log_says "workers have no priority" && allowed+='|worker-nice'
	log_says "built without a system call filter" && allowed+='|seccomp'
	[ "$(</sys/module/zswap/parameters/enabled)" = N ] || allowed+='|host-zswap'
	[ "$(wc -l </proc/swaps)" -eq 1 ] || allowed+='|mount-swaps|host-zram'
	doctor >"$DIR/ids"
	run grep -vxE "$allowed" "$DIR/ids"
	[ -z "$output" ] || { cat "$DIR/doctored"; return 1; }
	sed -i '/\[client vm1\]/,/maximum/d' "$CONF"
	reload_tmemd
	finds_not client-never
	if [ "$allowed" = client-never ]; then
		run ctl doctor
		[ "$status" -eq 0 ]
		says "nothing found; checks: "
	fi
	stop_tmemd
}

@test "no service" {
	finds service-unreachable "is tmemd running?"
	run ctl doctor
	[ "$status" -eq 1 ]
	says "error: service: it does not answer"
	says "; remedy: "
}

@test "limits that the host cannot meet" {
	write_conf
	start_tmemd
	finds no-host-reserve
	finds_not limits-memory
	finds_not limits-available
	finds_not limits-minimums
	finds_not host-short
	all=$(awk '/^MemTotal/ {print $2}' /proc/meminfo)
	sed -i -e 's/pool_max = .*/pool_max = 90%/' -e 's/host_reserve = .*/host_reserve = 20%/' "$CONF"
	echo "minimum = $((all / 100 * 85))K" >>"$CONF"
	sed -i '/^maximum/d' "$CONF"
	reload_tmemd
	finds limits-memory "more than the"
	finds limits-available
	finds limits-minimums
	finds_not no-host-reserve
	sed -i 's/host_reserve = .*/host_reserve = 100%/' "$CONF"
	reload_tmemd
	finds host-short "less than host_reserve"
	stop_tmemd
}

@test "frozen" {
	write_conf
	start_tmemd
	finds_not service-frozen
	finds_not client-frozen
	ctl freeze vm1
	finds client-frozen "client vm1"
	finds_not service-frozen
	ctl freeze --all
	finds service-frozen
	stop_tmemd
}

@test "clients: no VM, no maximum, not configured" {
	write_conf
	start_tmemd
	finds client-never "vm1"
	finds_not client-unbounded
	printf '[client vm2]\nsocket = %s/vm2.sock\n' "$DIR" >>"$CONF"
	reload_tmemd
	finds client-unbounded "client vm2"
	stop_tmemd
	sed -i '/\[client vm1\]/,/maximum/d' "$CONF"
	start_tmemd
	finds client-unconfigured "client vm1"
	finds_not client-unbounded
	stop_tmemd
}

@test "privileges and the filter of system calls" {
	[ "$(id -u)" -eq 0 ] || skip "not root"
	write_conf
	printf '[service]\nseccomp = off\n' >>"$CONF"
	start_tmemd
	finds privileges root
	finds seccomp
	stop_tmemd
	printf 'user = nobody\n' >>"$CONF"
	sed -i 's/seccomp = off/seccomp = on/' "$CONF"
	chmod 755 "$DIR"
	chown -R nobody "$SHM" "$DIR"
	start_tmemd
	finds_not privileges
	log_says "built without a system call filter" || finds_not seccomp
	stop_tmemd
}

# Case 7 of docs/cases.md.
@test "what the machine denied: IO_FLUSHER, locked memory, the OOM killer" {
	[ "$(id -u)" -eq 0 ] || skip "not root"
	write_conf
	start_under setpriv --bounding-set=-sys_resource,-ipc_lock,-sys_nice prlimit --memlock=65536:65536
	finds io-flusher threads
	finds memory-locked
	finds worker-nice
	finds oom-score
	[ "$(json '[f for f in d if f["id"] == "oom-score"][0]["finding"]' <"$DIR/doctored")" = \
		"oom_score_adj is $(<"/proc/$PID/oom_score_adj"): the OOM killer may choose it, which frees nothing" ]
	stop_tmemd
	ldd "$TMEMD" | grep -qE 'lib[at]san' && return 0
	start_tmemd
	# Where the machine permits it: the first start said that it does not.
	[ "$(grep -c 'memory cannot be locked' "$LOG")" -eq 2 ] || finds_not memory-locked
	[ "$(grep -c 'IO_FLUSHER cannot be set' "$LOG")" -eq 2 ] || finds_not io-flusher
	[ "$(grep -c 'oom_score_adj cannot be set' "$LOG")" -eq 2 ] || finds_not oom-score
	[ "$(grep -c 'workers have no priority' "$LOG")" -eq 2 ] || finds_not worker-nice
	stop_tmemd
}

@test "nobody keeps descriptors, or too few" {
	write_conf
	start_tmemd
	finds fd-store "nobody keeps"
	stop_tmemd
	with_systemd
	start_manager
	# A connection, and two doorbells for each of two rings.
	NOTIFY_SOCKET=$DIR/notify FDSTORE=4 start_tmemd
	finds fd-store "keeps 4 descriptors over a restart, 5 are needed"
	stop_tmemd
	NOTIFY_SOCKET=$DIR/notify FDSTORE=5 start_tmemd
	finds_not fd-store
	# And two for each disk.
	ctl disk create swap1 --size 8M --queues 4 --socket "$DIR/swap1.sock"
	finds fd-store "keeps 5 descriptors over a restart, 7 are needed"
	ctl disk remove swap1
	finds_not fd-store
	stop_tmemd
	# It does not say how many.
	NOTIFY_SOCKET=$DIR/notify start_tmemd
	finds_not fd-store
	stop_tmemd
}

@test "too few files may be open" {
	write_conf
	sed -i 's/rings = 2/rings = 64/' "$CONF"
	start_under prlimit --nofile=190:190
	finds descriptors "may open 190 files, and needs 195"
	stop_tmemd
	start_under prlimit --nofile=195:195
	finds_not descriptors
	# For each disk what is kept, its socket, and all that a front end can hand over.
	ctl disk create swap1 --size 8M --queues 4 --socket "$DIR/swap1.sock"
	finds descriptors "may open 195 files, and needs 278"
	stop_tmemd
}

@test "a control group that leaves less than pool_max" {
	[ "$(id -u)" -eq 0 ] || skip "not root"
	if [ -d /sys/fs/cgroup/memory ]; then
		CGROUP=/sys/fs/cgroup/memory/tmemd-cli.$$ limit=memory.limit_in_bytes
	else
		CGROUP=/sys/fs/cgroup/tmemd-cli.$$ limit=memory.max
	fi
	if ! mkdir "$CGROUP" || [ ! -w "$CGROUP/$limit" ]; then
		rmdir "$CGROUP" || true
		CGROUP=
		skip "no control group with a memory limit can be made here"
	fi
	write_conf
	start_under sh -c "'echo \$\$ > $CGROUP/cgroup.procs; exec \"\$@\"'" sh
	finds_not cgroup-limit
	echo $((100 << 20)) >"$CGROUP/$limit"
	finds cgroup-limit "has 100.0M, less than the 128.0M"
	stop_tmemd
}

@test "the arena's mount: no huge pages, or too small" {
	own_mount size=100M,huge=never
	write_conf
	start_tmemd
	finds arena-not-huge "remount,huge=advise $SHM"
	finds mount-small "has a size of 100.0M"
	finds mount-small "remount,size=134M $SHM"
	mount -o remount,size=134M,huge=advise "$SHM"
	finds_not mount-small
	stop_tmemd
	start_tmemd
	finds_not arena-not-huge
	stop_tmemd
}

@test "memory that the mount could not give" {
	own_mount size=24M,huge=never
	write_conf
	sed -i 's/ready_chunks = 8/ready_chunks = 32/' "$CONF"
	start_tmemd
	for _ in $(seq 100); do
		[ "$(ctl stat --json | json 'd["service"]["counters"]["populate_failed"]')" -gt 0 ] && break
		sleep 0.05
	done
	finds no-memory "had no memory for the pool"
	stop_tmemd
}

# The machine's own /proc and /sys, but for the files that a test puts there: below $DIR/root.
other_machine()
{
	root=(--root "$DIR/root")
	mkdir -p "$DIR/root/proc/sys/kernel" "$DIR/root/sys/module/zswap/parameters"
	ln -s "/proc/$PID" "$DIR/root/proc/$PID"
	cp /proc/meminfo "$DIR/root/proc/meminfo"
	printf '%s\t\t%s\t%s\t%s\t%s\n' Filename Type Size Used Priority >"$DIR/root/proc/swaps"
	echo N >"$DIR/root/sys/module/zswap/parameters/enabled"
}

swap()
{
	printf '%-40s%s\t%s\t%s\t%s\n' "$1" partition "$2" 0 "$3" >>"$DIR/root/proc/swaps"
}

@test "what else of the host compresses and swaps" {
	own_mount size=192M
	write_conf
	start_tmemd
	other_machine
	echo 6.12.9-amd64 >"$DIR/root/proc/sys/kernel/osrelease"
	echo Y >"$DIR/root/sys/module/zswap/parameters/enabled"
	finds_not host-zswap
	finds_not mount-swaps
	swap /dev/nvme0n1p3 8388604 -2
	finds host-zswap
	finds mount-swaps "$SHM may be swapped out"
	finds_not host-zram
	echo N >"$DIR/root/sys/module/zswap/parameters/enabled"
	swap /dev/zram0 4194300 100
	finds host-zram "4.0G"
	finds_not host-zswap
	# A kernel that does not know the option.
	echo 6.1.0-38-amd64 >"$DIR/root/proc/sys/kernel/osrelease"
	finds_not mount-swaps
	stop_tmemd
}

@test "a mount that does not swap" {
	own_mount size=192M,noswap
	write_conf
	start_tmemd
	other_machine
	echo 6.12.9-amd64 >"$DIR/root/proc/sys/kernel/osrelease"
	swap /dev/nvme0n1p3 8388604 -2
	finds_not mount-swaps
	stop_tmemd
}

# ---- In a guest: no service is asked. tests/vm/cases/doctor.sh does it in a real one. ----------

# What a guest of Debian 11 shows where all is well, with a swap disk.
good_guest()
{
	root=(--guest --root "$DIR/root")
	mkdir -p "$DIR/root/proc/sys/vm" \
		"$DIR"/root/sys/{module/{zswap,tmem}/parameters,kernel/debug/{tmem,frontswap},bus/pci/devices}
	for device in 8086:1237 1af4:1110; do
		mkdir "$DIR/root/sys/bus/pci/devices/$device"
		echo "0x${device%:*}" >"$DIR/root/sys/bus/pci/devices/$device/vendor"
		echo "0x${device#*:}" >"$DIR/root/sys/bus/pci/devices/$device/device"
	done
	GUEST=$DIR/root/sys/module/tmem/parameters
	DEBUG=$DIR/root/sys/kernel/debug/tmem
	echo Y >"$GUEST/frontswap"
	echo Y >"$GUEST/cleancache"
	echo 64 >"$GUEST/max_swap_gb"
	echo 0 >"$DIR/root/proc/sys/vm/page-cluster"
	echo N >"$DIR/root/sys/module/zswap/parameters/enabled"
	cat >"$DEBUG/state" <<-END
		link: open
		transport: ivshmem
		service_up: 1
		polling: 0
		epoch: 8f3a6a3b0c1d2e4f
		service_epoch: 1
		rings: 2
		entries: 256
		held_pages: 1033
	END
	for name in $(sed -n '/^#define TMEM_COUNTERS(C)/,/^$/s/.*C(\([a-z_]*\)).*/\1/p' \
		"${srcdir:-.}/guest/tmem_priv.h"); do
		echo "$name 0"
	done >"$DEBUG/counters"
	grep -q '^stores 0$' "$DEBUG/counters"
	printf '%s\t\t%s\t%s\t%s\t%s\n' Filename Type Size Used Priority >"$DIR/root/proc/swaps"
	swap /dev/vda 1048572 -2
}

# count NAME VALUE: a counter of the guest's module.
count()
{
	grep -q "^$1 " "$DEBUG/counters"
	sed -i "s/^$1 .*/$1 $2/" "$DEBUG/counters"
}

@test "a guest with nothing wrong" {
	good_guest
	[ -z "$(doctor "${root[@]}")" ]
	run "$TMEMCTL" doctor "${root[@]}"
	[ "$status" -eq 0 ]
	says "nothing found; checks: "
}

@test "a guest: device, module, link" {
	good_guest
	echo 0x1111 >"$DIR/root/sys/bus/pci/devices/1af4:1110/device"
	finds no-device
	for word in "waiting for the service" hello lost; do
		sed -i "s/^link:.*/link: $word/" "$DEBUG/state"
		finds link-down "$word"
	done
	sed -i "s/^link:.*/link: open/; s/up: 1/up: 0/; s/polling: 0/polling: 1/" "$DEBUG/state"
	finds link-down "no sign of life"
	finds link-polling
	rm "$DEBUG/state"
	finds no-counters
	finds_not link-down
	mv "$DIR/root/sys/module/tmem" "$DIR/root/sys/module/other"
	finds no-module
	finds_not no-counters
}

@test "a guest: zram before the disk, zswap, no swap, parameters" {
	good_guest
	swap /dev/zram0 524284 -3
	finds_not zram-first
	swap /dev/zram1 524284 100
	finds zram-first "/dev/zram1 (priority 100) comes before /dev/vda"
	echo Y >"$DIR/root/sys/module/zswap/parameters/enabled"
	finds guest-zswap
	echo 3 >"$DIR/root/proc/sys/vm/page-cluster"
	finds readahead "8 pages"
	swap /dev/vdb $((65 << 20)) -3
	finds swap-beyond "/dev/vdb is larger than max_swap_gb=64"
	finds_not cleancache-off
	echo N >"$GUEST/cleancache"
	echo N >"$GUEST/frontswap"
	finds frontswap-off
	# This kernel has no cleancache that could be missed.
	finds_not cleancache-off
	mkdir "$DIR/root/sys/kernel/debug/cleancache"
	finds cleancache-off
	sed -i 1q "$DIR/root/proc/swaps"
	finds no-swap
}

@test "a guest: what its counters say" {
	good_guest
	count stores 1000
	count stores_no_slot 99
	count stores_maximum 50
	count stores_no_room 49
	finds_not pages-not-offered
	finds_not pages-refused
	count stores_no_slot 101
	finds pages-not-offered "101 of 1000"
	count stores_no_room 51
	finds pages-refused "no room 51, maximum 50"
	finds_not pages-lost
	count loads_damaged 1
	finds pages-lost
	count loads_damaged 0
	count posted_failed 2
	finds pages-lost "2 accepted pages were refused"
}
