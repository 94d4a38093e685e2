# SPDX-License-Identifier: GPL-2.0-or-later
# What the command-line tests share. The programs are those of the current (build) directory.

TMEMD=$PWD/tmemd
TMEMCTL=$PWD/tmemctl
PYTHON=${PYTHON:-python3}

# A directory for sockets and configuration, and one on a tmpfs for the arena.
setup()
{
	DIR=$(mktemp -d /tmp/tmemd-cli.XXXXXX)
	SHM=$(mktemp -d /dev/shm/tmemd-cli.XXXXXX)
	CONF=$DIR/tmemd.conf
	SOCKET=$DIR/control.sock
	LOG=$DIR/log
	PID=
}

teardown()
{
	if [[ -n $PID ]]; then
		kill -KILL "$PID" 2>/dev/null || true
		wait "$PID" 2>/dev/null || true
	fi
	# Shown by bats when the test failed.
	[[ ! -s $LOG ]] || cat "$LOG"
	rm -rf "$DIR" "$SHM"
}

# The configuration that most tests use; they append what they want to the client.
write_conf()
{
	cat >"$CONF" <<-END
		[pool]
		arena = $SHM/arena
		pool_max = 128M
		ready_chunks = 8
		host_reserve = 0
		[control]
		socket = $SOCKET
		[client vm1]
		socket = $DIR/vm1.sock
		region = 4M
		rings = 2
		maximum = 64M
	END
}

# Starts tmemd and waits until it answers.
start_tmemd()
{
	"$TMEMD" --config "$CONF" "$@" >>"$LOG" 2>&1 3>&- &
	PID=$!
	for _ in $(seq 200); do
		if "$TMEMCTL" --socket "$SOCKET" version >/dev/null 2>&1; then
			return 0
		fi
		kill -0 "$PID" || return 1
		sleep 0.05
	done
	return 1
}

# Stops it in order; its exit status.
stop_tmemd()
{
	local status=0

	kill -TERM "$PID"
	wait "$PID" || status=$?
	PID=
	return $status
}

# The configuration is read again; returns when that is done.
reload_tmemd()
{
	local before

	before=$(grep -c '^reload: \(done\|nothing\)' "$LOG") || true
	kill -HUP "$PID"
	for _ in $(seq 200); do
		[[ $(grep -c '^reload: \(done\|nothing\)' "$LOG") -gt $before ]] && return 0
		sleep 0.05
	done
	return 1
}

ctl()
{
	"$TMEMCTL" --socket "$SOCKET" "$@"
}

# A value from JSON on standard input: an expression on `d`.
json()
{
	"$PYTHON" -ISc 'import json, sys; d = json.load(sys.stdin); print(eval(sys.argv[1]))' "$1"
}

# The output of the last `run` has this text.
says()
{
	if [[ $output != *"$1"* ]]; then
		printf 'expected: %s\nsaid:     %s\n' "$1" "$output"
		return 1
	fi
}

# The service's log has this text, or has it not. (A leading "!" would not fail a test.)
log_says()
{
	grep -qF -- "$1" "$LOG"
}

log_says_not()
{
	if log_says "$1"; then
		echo "the log should not say: $1"
		return 1
	fi
}
