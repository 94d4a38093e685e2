# SPDX-License-Identifier: GPL-2.0-or-later
# tmemd as a process: start, stop, reload, and what it refuses to start with.

load lib

@test "start and stop; sockets come and go, the arena stays" {
	write_conf
	start_tmemd
	[ -S "$SOCKET" ]
	[ "$(stat -c %a "$SOCKET")" = 660 ]
	[ -S "$DIR/vm1.sock" ]
	[ "$(stat -c %a "$SHM/arena")" = 600 ]
	SECONDS=0
	stop_tmemd
	[ "$SECONDS" -le 5 ]
	[ ! -e "$SOCKET" ]
	[ -f "$SHM/arena" ]
	start_tmemd
	stop_tmemd
}

@test "SIGINT stops as SIGTERM does" {
	write_conf
	start_tmemd
	kill -INT "$PID"
	wait "$PID"
	PID=
}

@test "kill -9 and start again: stale sockets are no hindrance" {
	write_conf
	start_tmemd
	kill -KILL "$PID"
	wait "$PID" || true
	[ -S "$SOCKET" ]
	start_tmemd
	stop_tmemd
}

@test "SIGTERM during a long reclaim" {
	write_conf
	start_tmemd
	ctl reclaim 1T --timeout 60 >/dev/null 2>&1 3>&- &
	sleep 0.5
	SECONDS=0
	stop_tmemd
	[ "$SECONDS" -le 5 ]
	wait $! || true
}

@test "memory is locked, but populated on fault only" {
	ldd "$TMEMD" | grep -qE 'lib[at]san' && skip "the sanitizers turn mlockall into nothing"
	write_conf
	start_tmemd
	grep -q 'memory cannot be locked' "$LOG" && skip "this machine does not permit it"
	locked=$(awk '/^VmLck/ {print $2}' "/proc/$PID/status")
	resident=$(awk '/^VmRSS/ {print $2}' "/proc/$PID/status")
	mapped=$(awk '/^VmSize/ {print $2}' "/proc/$PID/status")
	echo "locked $locked, resident $resident, mapped $mapped KiB"
	[ "$locked" -gt 0 ]
	[ "$resident" -lt $((mapped / 2)) ]
}

# Case 7 of docs/cases.md.
@test "IO_FLUSHER is set, or its absence is said once" {
	write_conf
	start_tmemd
	# CAP_SYS_RESOURCE is bit 24.
	effective=$((16#$(awk '/^CapEff/ {print $2}' "/proc/self/status")))
	if ((effective >> 24 & 1)); then
		# PF_MEMALLOC_NOIO, which it sets, in the flags of the process.
		flags=$(awk '{print $9}' "/proc/$PID/stat")
		[ $((flags & 0x00080000)) -ne 0 ]
		log_says_not "IO_FLUSHER"
	else
		[ "$(grep -c 'IO_FLUSHER cannot be set' "$LOG")" -eq 1 ]
	fi
}

@test "the service becomes the user of its configuration" {
	[ "$(id -u)" -eq 0 ] || skip "not root"
	write_conf
	printf '[service]\nuser = nobody\n' >>"$CONF"
	chmod 755 "$DIR"
	chown nobody "$SHM" "$DIR"
	start_tmemd
	[ "$(stat -c %U "/proc/$PID")" = nobody ] || [ "$(awk '/^Uid/ {print $2}' "/proc/$PID/status")" = "$(id -u nobody)" ]
	# CAP_CHOWN (0) and CAP_IPC_LOCK (14), at most.
	[ $((16#$(awk '/^CapEff/ {print $2}' "/proc/$PID/status") & ~16#4001)) -eq 0 ]
	[ "$(awk '/^NoNewPrivs/ {print $2}' "/proc/$PID/status")" = 1 ]
	ctl list
	reload_tmemd
	stop_tmemd
}

@test "the filter of system calls is on, and off when it is told" {
	write_conf
	start_tmemd
	seccomp=$(awk '/^Seccomp:/ {print $2}' "/proc/$PID/status")
	if ! log_says "built without a system call filter"; then
		[ "$seccomp" = 2 ]
		for status in /proc/"$PID"/task/*/status; do
			grep -q '^Seccomp:.*2' "$status"
		done
	fi
	stop_tmemd
	printf '[service]\nseccomp = off\n' >>"$CONF"
	start_tmemd
	log_says "seccomp = off"
	stop_tmemd
}

@test "a second tmemd on the same arena is refused" {
	write_conf
	start_tmemd
	sed "s,$SOCKET,$DIR/other.sock,; s,$DIR/vm1.sock,$DIR/vm2.sock," "$CONF" >"$DIR/second.conf"
	run timeout 20 "$TMEMD" --config "$DIR/second.conf"
	[ "$status" -eq 78 ]
	says "another"
	says "arena"
	ctl list
	[ -S "$DIR/vm1.sock" ]
	stop_tmemd
}

@test "a second tmemd on the same control socket is refused" {
	write_conf
	start_tmemd
	mkdir "$SHM/two"
	sed "s,$SHM/arena,$SHM/two/arena,; s,$DIR/vm1.sock,$DIR/vm2.sock," "$CONF" >"$DIR/second.conf"
	run timeout 20 "$TMEMD" --config "$DIR/second.conf"
	[ "$status" -eq 1 ]
	says "another tmemd answers there"
	ctl list
	stop_tmemd
}

@test "an arena on another file system is refused, with the mount command" {
	[ "$(stat -f -c %T /tmp)" != tmpfs ] || skip "/tmp is a tmpfs"
	write_conf
	sed -i "s,$SHM/arena,$DIR/arena," "$CONF"
	run timeout 20 "$TMEMD" --config "$CONF"
	[ "$status" -eq 78 ]
	says "mount -t tmpfs -o size="
	says "run-tmemd.mount"
	[ ! -e "$DIR/arena" ]
}

@test "a directory that is not there is refused, with what to do" {
	write_conf
	sed -i "s,$SHM/arena,$SHM/none/arena," "$CONF"
	run timeout 20 "$TMEMD" --config "$CONF"
	[ "$status" -eq 78 ]
	says "mkdir -p $SHM/none"
}

@test "a damaged superblock is refused, and left as it is" {
	write_conf
	start_tmemd
	stop_tmemd
	printf '\xff\xff\xff\xff' | dd of="$SHM/arena" bs=1 seek=12 conv=notrunc status=none
	before=$(head -c 4096 "$SHM/arena" | sha256sum)
	run timeout 20 "$TMEMD" --config "$CONF"
	[ "$status" -eq 78 ]
	says "the arena is left as it is"
	[ "$(head -c 4096 "$SHM/arena" | sha256sum)" = "$before" ]
}

@test "a file that is no arena is refused, and left as it is" {
	write_conf
	echo "somebody's letters" >"$SHM/arena"
	run timeout 20 "$TMEMD" --config "$CONF"
	[ "$status" -ne 0 ]
	[ "$(cat "$SHM/arena")" = "somebody's letters" ]
}

@test "TMEMD_FAULTS that are not understood are refused" {
	write_conf
	TMEMD_FAULTS=no_such_point=kill run timeout 20 "$TMEMD" --config "$CONF"
	[ "$status" -eq 2 ]
	says "no_such_point"
}

@test "reload: limits, pool_max, log level, and what takes a restart" {
	write_conf
	start_tmemd
	sed -i -e 's/maximum = 64M/maximum = 32M\nminimum = 8M\nweight = 7/' -e 's/pool_max = 128M/pool_max = 96M/' "$CONF"
	printf '[front]\nworkers = 1\n' >>"$CONF"
	reload_tmemd
	log_says "[front] workers has changed; it takes effect at the next start"
	[ "$(ctl list --json | json 'd["clients"][0]["maximum_bytes"]')" -eq $((32 << 20)) ]
	[ "$(ctl list --json | json 'd["clients"][0]["minimum_bytes"]')" -eq $((8 << 20)) ]
	[ "$(ctl list --json | json 'd["clients"][0]["weight"]')" -eq 7 ]
	[ "$(ctl list --json | json 'd["service"]["pool_max_bytes"]')" -eq $((96 << 20)) ]
	stop_tmemd
}

@test "reload: a wrong configuration changes nothing" {
	write_conf
	start_tmemd
	sed -i -e 's/maximum = 64M/maximum = 32M/' -e 's/pool_max = 128M/pool_max = much/' "$CONF"
	reload_tmemd
	log_says "[pool] pool_max = much"
	log_says "nothing is changed"
	[ "$(ctl list --json | json 'd["clients"][0]["maximum_bytes"]')" -eq $((64 << 20)) ]
	stop_tmemd
}

@test "reload: clients come and go" {
	write_conf
	start_tmemd
	printf '[client vm2]\nsocket = %s/vm2.sock\nregion = 4M\nrings = 2\n' "$DIR" >>"$CONF"
	reload_tmemd
	[ -S "$DIR/vm2.sock" ]
	[ "$(ctl list --json | json '[c["name"] for c in d["clients"]]')" = "['vm1', 'vm2']" ]
	sed -i '/\[client vm1\]/,/maximum/d' "$CONF"
	reload_tmemd
	[ ! -e "$DIR/vm1.sock" ]
	[ "$(ctl list --json | json '[c["name"] for c in d["clients"]]')" = "['vm2']" ]
	stop_tmemd
}

@test "reload: a client's socket moves; a place that is taken by a file is not overwritten" {
	write_conf
	start_tmemd
	sed -i "s,^socket = $DIR/vm1.sock,socket = $DIR/moved.sock\nsocket_mode = 0640," "$CONF"
	reload_tmemd
	log_says_not "vm1"
	[ ! -e "$DIR/vm1.sock" ]
	[ "$(stat -c %a "$DIR/moved.sock")" = 640 ]
	[ "$(ctl list --json | json 'd["clients"][0]["socket"]')" = "$DIR/moved.sock" ]
	echo precious >"$DIR/file"
	sed -i "s,^socket = $DIR/moved.sock,socket = $DIR/file," "$CONF"
	reload_tmemd
	log_says "client vm1: socket $DIR/file: Address already in use"
	[ "$(cat "$DIR/file")" = precious ]
	[ -S "$DIR/moved.sock" ]
	stop_tmemd
	# At a start it is an error, and the file stays as well.
	run "$TMEMD" --config "$CONF"
	[ "$status" -ne 0 ]
	[ "$(cat "$DIR/file")" = precious ]
}

@test "reload: minimums may be exchanged between clients in either order" {
	write_conf
	printf 'minimum = 60M\n[client vm2]\nsocket = %s/vm2.sock\nminimum = 10M\n' "$DIR" >>"$CONF"
	start_tmemd
	sed -i -e 's/minimum = 60M/minimum = XX/; s/minimum = 10M/minimum = 60M/; s/XX/10M/' -e 's/pool_max = 128M/pool_max = 70M/' "$CONF"
	reload_tmemd
	log_says_not "stays at"
	[ "$(ctl list --json | json '[c["minimum_bytes"] >> 20 for c in d["clients"]]')" = "[10, 60]" ]
	sed -i -e 's/minimum = 60M/minimum = XX/; s/minimum = 10M/minimum = 60M/; s/XX/10M/' "$CONF"
	reload_tmemd
	[ "$(ctl list --json | json '[c["minimum_bytes"] >> 20 for c in d["clients"]]')" = "[60, 10]" ]
	log_says_not "reload: client"
	stop_tmemd
}

@test "a client that is no longer configured at a start is kept, said and shown" {
	write_conf
	start_tmemd
	stop_tmemd
	sed -i '/\[client vm1\]/,/maximum/d' "$CONF"
	start_tmemd
	log_says "client vm1 is in the arena"
	[ "$(ctl list --json | json 'd["clients"][0]["state"]')" = unconfigured ]
	stop_tmemd
}

@test "a client of Xen where there is no Xen is said and not served, the others are" {
	[[ ! -e /proc/xen/capabilities ]] || skip "this host runs Xen"
	write_conf
	printf '[client dom]\nfront = xen\n' >>"$CONF"
	start_tmemd
	log_says 'Xen cannot be served: '
	log_says 'client dom: front = xen: '
	run ctl list
	says vm1
	says dom
	stop_tmemd
}

@test "the service manager is told: READY, RELOADING, STOPPING" {
	write_conf
	ldd "$TMEMD" | grep -q libsystemd || skip "built without libsystemd"
	"$PYTHON" "${srcdir:-.}/tests/cli/manager.py" "$DIR/notify" "$DIR/told" 3>&- &
	manager=$!
	for _ in $(seq 100); do
		[ -S "$DIR/notify" ] && break
		sleep 0.05
	done
	export NOTIFY_SOCKET=$DIR/notify WATCHDOG_USEC=400000
	start_tmemd
	unset NOTIFY_SOCKET WATCHDOG_USEC
	reload_tmemd
	sleep 0.5
	stop_tmemd
	kill "$manager"
	wait "$manager" || true
	cat "$DIR/told"
	# In this order, each in its place.
	grep -n -m1 READY=1 "$DIR/told"
	grep -q "STATUS=Serving; clients: 1" "$DIR/told"
	grep -q MONOTONIC_USEC= "$DIR/told"
	grep -q WATCHDOG=1 "$DIR/told"
	[ "$(grep -o 'READY=1\|RELOADING=1\|STOPPING=1' "$DIR/told" | tr '\n' ' ')" = "READY=1 RELOADING=1 READY=1 STOPPING=1 " ]
}
