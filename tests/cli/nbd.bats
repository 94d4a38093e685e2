# SPDX-License-Identifier: GPL-2.0-or-later
# The plugin of nbdkit, as its operator and its clients see it. Loads and kills are in
# tests/service/nbd.c.

load lib

PLUGIN=$PWD/nbdkit-tmem-plugin.so

setup_service()
{
	local tool

	[ -f "$PLUGIN" ] || skip "the plugin was not built"
	for tool in nbdkit nbdinfo; do
		command -v $tool >/dev/null || skip "$tool is not installed"
	done
	# A Python of somebody else may come before the system's, whose modules are wanted.
	python=$(for p in python3 /usr/bin/python3; do $p -c 'import nbd' 2>/dev/null && echo $p && break; done) ||
		skip "the Python module nbd is not installed"
	# The plugin comes with the sanitizer's runtime, which must be the first to be loaded.
	preload=$(ldd "$PLUGIN" | awk '/lib[at]san/ { print $3 }')
	write_conf
	start_tmemd
	ctl disk create d1 --size 64M --socket "$DIR/d1.sock" >/dev/null
	NBD=$DIR/nbd.sock
	NBDKIT=
}

teardown_nbd()
{
	[ -z "${NBDKIT:-}" ] || kill -KILL "$NBDKIT" 2>/dev/null || true
}

eval "lib_$(declare -f teardown)"
teardown()
{
	teardown_nbd
	lib_teardown
}

plain_nbdkit() { LD_PRELOAD=$preload ASAN_OPTIONS=detect_leaks=0 nbdkit "$@"; }

# nbdkit with the plugin and these parameters, in the foreground, ready when this returns.
serve()
{
	rm -f "$NBD"
	LD_PRELOAD=$preload ASAN_OPTIONS=detect_leaks=0 nbdkit -f -U "$NBD" -P "$DIR/pid" "${options[@]}" \
		"$PLUGIN" "$@" >>"$LOG" 2>&1 3>&- &
	NBDKIT=$!
	for _ in $(seq 200); do
		[ ! -s "$DIR/pid" ] || return 0
		kill -0 "$NBDKIT" || return 1
		sleep 0.05
	done
	return 1
}
options=()

stop_nbdkit()
{
	kill -KILL "$NBDKIT"
	wait "$NBDKIT" || true
	NBDKIT=
	rm -f "$DIR/pid"
}

# Python with a connected handle h; what raises an nbd.Error can be asked for with errno_of(f).
client()
{
	"$python" - "nbd+unix:///?socket=$NBD" "$@" <<-END
		import errno, nbd, sys, time
		uri = sys.argv[1]
		def connect():
		    h = nbd.NBD()
		    h.set_strict_mode(0)
		    h.connect_uri(uri)
		    return h
		def errno_of(f):
		    try:
		        f()
		    except nbd.Error as e:
		        return errno.errorcode[e.errnum]
		    return None
		h = connect()
		$(cat)
	END
}

pages() { ctl stat d1 --json | json 'd["clients"][0]["pages_persistent"]'; }

refuses()
{
	local text=$1

	shift
	run timeout 20 env LD_PRELOAD="$preload" ASAN_OPTIONS=detect_leaks=0 \
		nbdkit -f -U "$DIR/other.sock" "$PLUGIN" "$@"
	[ "$status" -ne 0 ]
	says "$text"
}

@test "what it says of itself" {
	setup_service
	run plain_nbdkit "$PLUGIN" --dump-plugin
	[ "$status" -eq 0 ]
	says "name=tmem"
	says "$("$TMEMD" --version | sed 's/^tmemd /version=/')"
	says "thread_model=parallel"
	says "tmem_socket_directory=/run/tmem"
	run plain_nbdkit "$PLUGIN" --help
	says "socket=<PATH>"
	says "timeout=<SECONDS>"
}

@test "bad parameters, and disks that cannot be had" {
	setup_service
	refuses "say which disk"
	refuses 'there is no parameter "dsk": allowed are disk, socket and timeout' dsk=d1
	refuses "give disk=NAME or socket=PATH, and give it once" disk=d1 socket="$DIR/d1.sock"
	refuses "give it once" d1 disk=d2
	refuses '"a/b" cannot be the name of a disk' a/b
	refuses '"" cannot be the name of a disk' disk=
	refuses "107 characters at most" socket="/$(printf 'x%.0s' {1..120})"
	refuses "timeout" socket="$DIR/d1.sock" timeout=soon
	refuses "there is no /run/tmem/no-such-disk.sock: is tmemd running" no-such-disk
	refuses "there is no $DIR/x.sock" socket="$DIR/x.sock"
	refuses "what serves $DIR/vm1.sock is not a disk of tmemd" socket="$DIR/vm1.sock"
	stop_tmemd
	"$python" -c "import socket; socket.socket(socket.AF_UNIX).bind('$DIR/dead.sock')"
	refuses "nobody listens at $DIR/dead.sock" socket="$DIR/dead.sock"
}

@test "a disk has one front end" {
	setup_service
	serve socket="$DIR/d1.sock"
	refuses "another front end has the disk" socket="$DIR/d1.sock"
	[ "$(ctl disk list --json | json '[x["pid"] for x in d["disks"]]')" = "[$NBDKIT]" ]
	# The one that has it does not notice.
	client <<-'END'
		h.pwrite(b'x' * 4096, 0)
		assert h.pread(4096, 0) == b'x' * 4096
	END
	stop_nbdkit
	serve socket="$DIR/d1.sock"
	client <<-'END'
		assert h.pread(4096, 0) == b'x' * 4096
	END
}

@test "what is offered: size, blocks, flags" {
	setup_service
	serve socket="$DIR/d1.sock"
	nbdinfo --json "nbd+unix:///?socket=$NBD" >"$DIR/info"
	info() { json "d['exports'][0][$1]" <"$DIR/info"; }
	[ "$(info '"export-size"')" = $((64 << 20)) ]
	[ "$(info '"block_size_minimum"')" = 4096 ]
	for flag in can_multi_conn can_fua can_flush can_trim can_zero can_fast_zero can_cache; do
		[ "$(info "\"$flag\"")" = True ]
	done
	[ "$(info '"is_read_only"')" = False ]
	[ "$(info '"is_rotational"')" = False ]
	[[ $(info '"description"') == *d1.sock* ]]
	# A connection that begins after the disk has grown sees it; one that was there does not.
	client <<-END
		import subprocess
		subprocess.check_call(['$TMEMCTL', '-s', '$SOCKET', 'disk', 'resize', 'd1', '80M'])
		assert h.get_size() == 64 << 20
		g = connect()
		assert g.get_size() == 80 << 20
		g.pwrite(b'y' * 4096, (80 << 20) - 4096)
		assert g.pread(4096, (80 << 20) - 4096) == b'y' * 4096
	END
	stop_nbdkit
	options=(-r)
	serve socket="$DIR/d1.sock"
	client <<-'END'
		assert h.is_read_only()
		assert errno_of(lambda: h.pwrite(b'z' * 4096, 0)) == 'EPERM'
	END
}

@test "reads, writes, trim, zero, flush, FUA; requests larger than what goes through in one piece" {
	setup_service
	serve socket="$DIR/d1.sock"
	client <<-'END'
		import random
		r = random.Random(7)
		big = bytes(r.randrange(256) for _ in range(4096)) * 2 * 256 * 3 # 6 MiB
		h.pwrite(big, 8192)
		assert h.pread(len(big), 8192) == big
		h.pwrite(b'a' * 4096, 0, nbd.CMD_FLAG_FUA)
		h.flush()
		assert h.pread(8192, 0) == b'a' * 4096 + bytes(4096)
		h.trim(4096, 8192, nbd.CMD_FLAG_FUA)
		h.zero(8192, 16384)
		h.zero(4096, 32768, nbd.CMD_FLAG_NO_HOLE | nbd.CMD_FLAG_FAST_ZERO)
		want = bytearray(big)
		want[0:4096] = want[24576:28672] = bytes(4096)
		want[8192:16384] = bytes(8192)
		assert h.pread(len(big), 8192) == want
		h.cache(65536, 0)
	END
	[ "$(pages)" = $((1536 + 1 - 4)) ]
	client <<-'END'
		h.trim(64 << 20, 0)
		assert h.pread(1 << 20, 0) == bytes(1 << 20)
	END
	[ "$(pages)" = 0 ]
	[ "$(ctl stat d1 --json | json 'd["clients"][0]["counters"]["disk_errors"]')" = 0 ]
}

@test "requests that are not of whole blocks are refused and said once; a filter helps" {
	setup_service
	serve socket="$DIR/d1.sock"
	client <<-'END'
		h.pwrite(b'a' * 8192, 0)
		assert errno_of(lambda: h.pread(512, 0)) == 'EINVAL'
		assert errno_of(lambda: h.pread(4096, 512)) == 'EINVAL'
		assert errno_of(lambda: h.pwrite(b'b' * 512, 512)) == 'EINVAL'
		assert errno_of(lambda: h.trim(512, 0)) == 'EINVAL'
		assert errno_of(lambda: h.zero(4096, 2048)) == 'EINVAL'
		assert errno_of(lambda: h.pread(4096, 64 << 20)) == 'EINVAL'
		assert h.pread(8192, 0) == b'a' * 8192
	END
	log_says "a request of 512 bytes at 0 is not of whole blocks of 4096 bytes; for clients that ask for less use --filter=blocksize minblock=4096"
	[ "$(grep -c 'is not of whole blocks' "$LOG")" = 1 ]
	stop_nbdkit
	options=(--filter=blocksize)
	serve socket="$DIR/d1.sock" minblock=4096
	client <<-'END'
		h.pwrite(b'b' * 512, 512)
		assert h.pread(8192, 0) == b'a' * 512 + b'b' * 512 + b'a' * 7168
	END
}

@test "timeout: requests fail after it while tmemd is away, and without it they wait" {
	setup_service
	serve socket="$DIR/d1.sock" timeout=1
	client <<-END
		import os
		h.pwrite(b'x' * 4096, 0)
		os.kill($PID, 9)
		start = time.time()
		assert errno_of(lambda: h.pread(4096, 0)) == 'EIO'
		assert time.time() - start > 0.9
	END
	wait "$PID" || true
	log_says "$DIR/d1.sock: the connection ended: requests wait"
	start_tmemd
	client <<-'END'
		assert h.pread(4096, 0) == b'x' * 4096
	END
	log_says "connected again after"
	stop_nbdkit
	serve socket="$DIR/d1.sock"
	client <<-END &
		import os
		open('$DIR/connected', 'w')
		while not os.path.exists('$DIR/away'):
		    time.sleep(0.01)
		start = time.time()
		assert h.pread(4096, 0) == b'x' * 4096
		assert time.time() - start > 2.9
	END
	reader=$!
	for _ in $(seq 200); do [ ! -e "$DIR/connected" ] || break; sleep 0.05; done
	stop_tmemd
	touch "$DIR/away"
	sleep 3
	log_says "$DIR/d1.sock: requests have waited for 2 s: nobody serves the socket: tmemd is down, or the disk was removed"
	start_tmemd
	wait $reader
}

@test "the disk is removed under it and made anew: nothing reads as zeroes that was not" {
	setup_service
	serve socket="$DIR/d1.sock"
	client <<-END
		import subprocess, threading
		h.pwrite(b'x' * 4096, 0)
		ctl = ['$TMEMCTL', '-s', '$SOCKET', 'disk']
		subprocess.check_call(ctl + ['remove', 'd1', '--force'])
		result = []
		reader = threading.Thread(target=lambda: result.append(errno_of(lambda: h.pread(4096, 0))))
		reader.start()
		time.sleep(1)
		assert not result, result
		subprocess.check_call(ctl + ['create', 'd1', '--size', '64M', '--socket', '$DIR/d1.sock'])
		reader.join()
		assert result == ['EIO'], result
		assert errno_of(lambda: h.pread(4096, 0)) == 'EIO'
		assert errno_of(lambda: h.pwrite(b'y' * 4096, 0)) == 'EIO'
		try:
		    connect()
		    assert False, 'a new client gets the new disk'
		except nbd.Error:
		    pass
	END
	log_says "the content of the disk is lost, it was made anew meanwhile"
	stop_nbdkit
	serve socket="$DIR/d1.sock"
	client <<-'END'
		assert h.pread(4096, 0) == bytes(4096)
	END
}

@test "systemd hands the socket over" {
	setup_service
	grep -q "^ExecStart=nbdkit --foreground .*/nbdkit-tmem-plugin.so disk=%i$" tmem-nbd@.service
	# The same program as of the unit, with the socket as its descriptor 3.
	LD_PRELOAD= "$python" - "$NBD" "$DIR/d1.sock" "$PLUGIN" "$preload" >>"$LOG" 2>&1 3>&- <<-'END' &
		import os, socket, sys
		s = socket.socket(socket.AF_UNIX)
		s.bind(sys.argv[1])
		s.listen()
		os.dup2(s.fileno(), 3)
		os.set_inheritable(3, True)
		os.environ.update(LISTEN_FDS='1', LISTEN_PID=str(os.getpid()), LD_PRELOAD=sys.argv[4],
		                  ASAN_OPTIONS='detect_leaks=0')
		os.execvp('nbdkit', ['nbdkit', '--foreground', sys.argv[3], 'socket=' + sys.argv[2]])
	END
	NBDKIT=$!
	for _ in $(seq 100); do [ ! -S "$NBD" ] || break; sleep 0.05; done
	client <<-'END'
		h.pwrite(b'x' * 4096, 0)
		assert h.pread(4096, 0) == b'x' * 4096
	END
	# All of it is locked, and only what it uses is had. (A sanitizer locks nothing.)
	[ -z "$preload" ] || return 0
	kb() { awk -v k="$1:" '$1 == k { print $2 }' "/proc/$NBDKIT/status"; }
	[ "$(kb VmLck)" -gt 10240 ]
	[ $(($(kb RssAnon) + $(kb RssShmem))) -lt 8192 ]
}
