# SPDX-License-Identifier: GPL-2.0-or-later
# What people and programs get wrong at the control socket: each gets a clear error and costs
# nothing else. rude.py has the connections.

load lib

rude()
{
	run timeout 60 "$PYTHON" "${srcdir:-.}/tests/cli/rude.py" "$SOCKET" "$@"
	[ "$status" -eq 0 ] || { echo "$output"; return 1; }
}

setup_service()
{
	write_conf
	start_tmemd
}

@test "requests that are no requests" {
	setup_service
	rude garbage
	ctl list >/dev/null
}

@test "keys and values that are not allowed" {
	setup_service
	rude values
	ctl list >/dev/null
}

@test "a request of 64 KiB is read, a longer one is refused and the connection ends" {
	setup_service
	rude huge
	ctl list >/dev/null
}

@test "several requests in one connection, in pieces and at once; answers in order with their id" {
	setup_service
	rude pipeline
}

@test "a half request ends after ten seconds, and others are served meanwhile" {
	setup_service
	rude half
}

@test "an answer that nobody takes ends the connection" {
	setup_service
	rude deaf
	ctl list >/dev/null
}

@test "the 65th connection is told so; with one gone there is room again" {
	setup_service
	rude many
	ctl list >/dev/null
}

@test "thousands of connections come and go; nothing is left behind" {
	setup_service
	ctl list >/dev/null
	before=$(ls "/proc/$PID/fd" | wc -l)
	rude churn
	for _ in $(seq 50); do
		[ "$(ls "/proc/$PID/fd" | wc -l)" -le "$before" ] && break
		sleep 0.1
	done
	[ "$(ls "/proc/$PID/fd" | wc -l)" -le "$before" ]
	ctl list >/dev/null
}

@test "a connection that leaves in the middle of a long command" {
	setup_service
	rude leave
	sleep 1.5
	ctl list >/dev/null
	stop_tmemd
}

@test "the ninth long command at a time is told that the service is busy" {
	setup_service
	rude jobs
	ctl list >/dev/null
}

@test "others than root and the group are denied by their credentials, whatever the file's mode" {
	[ "$(id -u)" -eq 0 ] || skip "not root"
	command -v setpriv >/dev/null || skip "setpriv is not installed"
	write_conf
	sed -i "s,^socket = $SOCKET,&\nmode = 0666\ngroup = 12345," "$CONF"
	chmod 755 "$DIR"
	start_tmemd
	[ "$(stat -c '%a %g' "$SOCKET")" = "666 12345" ]
	run setpriv --reuid 12346 --regid 12346 --clear-groups "$TMEMCTL" -s "$SOCKET" list
	[ "$status" -eq 1 ]
	says "allowed are root and the group"
	setpriv --reuid 12346 --regid 12345 --clear-groups "$TMEMCTL" -s "$SOCKET" list
	setpriv --reuid 12346 --regid 12346 --groups 7,12345 "$TMEMCTL" -s "$SOCKET" list
}

@test "the file's mode keeps others out" {
	[ "$(id -u)" -eq 0 ] || skip "not root"
	command -v setpriv >/dev/null || skip "setpriv is not installed"
	setup_service
	chmod 755 "$DIR"
	run setpriv --reuid 12346 --regid 12346 --clear-groups "$TMEMCTL" -s "$SOCKET" list
	[ "$status" -eq 3 ]
	says "Permission denied"
}
