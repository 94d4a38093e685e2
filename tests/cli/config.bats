# SPDX-License-Identifier: GPL-2.0-or-later
# The configuration: what is refused, and in which words.

load lib

check()
{
	run "$TMEMD" --config "$CONF" --check-config
}

# refused TEXT-OF-THE-FILE EXPECTED...: each expected text is in what --check-config says.
refused()
{
	printf '%b' "$1" >"$CONF"
	shift
	check
	[ "$status" -eq 78 ] || { echo "accepted: $(cat "$CONF")"; return 1; }
	for text; do
		says "$text"
	done
}

@test "an empty configuration and a full one are good" {
	: >"$CONF"
	check
	[ "$status" -eq 0 ]
	says "good; clients: 0; disks: 0"
	cat >"$CONF" <<-END
		; a comment
		# another
		[service]
		user = $(id -un)
		seccomp = off
		[pool]
		arena = $SHM/arena
		pool_max = 1G ; one gibibyte
		host_reserve = 5%
		ready_chunks = 4
		  [front]
		    workers = 2
		    poll: 100
		    regions = $SHM/regions
		[control]
		socket = $SOCKET
		mode = 0600
		group = 0
		[log]
		level = debug
		[client vm1]
		front = ivshmem
		socket = $DIR/a
		socket_owner = 0
		socket_group = $(id -gn)
		socket_mode = 666
		region = 16M
		rings = 8
		credits = 0
		minimum = 1m
		maximum = 1T
		weight = 1
		shared_auth = 01234567-89ab-cdef-0123-456789abcdef 11111111-89ab-cdef-0123-456789ABCDEF
		shared_auth = 22222222-89ab-cdef-0123-456789abcdef
		[client vm2]
		[disk swap1]
		size = 256M
		queues = 8
		overcommit = no
		socket = $DIR/swap1
		socket_owner = 0
		socket_group = $(id -gn)
		socket_mode = 600
		minimum = 1m
		maximum = 256M
		weight = 1
		[disk swap2]
		size = 16T
		overcommit = yes
		[peers]
		name = host1
		address = ::1
		port = 1
		lend = 512M
		copies = 1
		allow = host2, rack7-*
		allow = host3
		tls = $DIR/tls
		ca = $DIR/ca
		psk = $DIR/psk
		[peer host2]
		host = 192.0.2.2
		[peer vm1]
		host = vm1.example.org
		port = 65535
	END
	check
	echo "$output"
	[ "$status" -eq 0 ]
	says "good; clients: 2; disks: 2"
}

@test "the example is good" {
	sed 's/^user = .*//' "${srcdir:-.}/tools/systemd/tmemd.conf" >"$CONF"
	check
	[ "$status" -eq 0 ]
	# And with everything in it that is commented out, but for the names of one distribution.
	sed -e 's/^user = .*//' -e 's/^#\([[a-z]\)/\1/' -e '/libvirt-qemu\|= kvm\|= tmemctl/d' \
		"${srcdir:-.}/tools/systemd/tmemd.conf" >"$CONF"
	check
	echo "$output"
	[ "$status" -eq 0 ]
	says "good; clients: 1; disks: 1"
}

@test "each wrong value is said with file, line, key and what is allowed" {
	refused '[pool]\narena = relative\n' "$CONF:2: [pool] arena = relative: allowed is an absolute path"
	refused '[pool]\n\npool_max = 12Q\n' "$CONF:3: [pool] pool_max = 12Q: allowed is a number of bytes"
	refused '[pool]\npool_max = 1M\n' "pool_max = 1M" "from 16777216 to"
	refused '[pool]\npool_max = 101%%\n' "percentage"
	refused '[pool]\npool_max = 99999999999999999999\n' "pool_max"
	refused '[pool]\npool_max = -1\n' "pool_max = -1"
	refused '[pool]\npool_max =\n' "[pool] pool_max = : allowed"
	refused '[pool]\nready_chunks = 0\n' "a number from 1 to 1024"
	refused '[front]\nworkers = many\n' "$CONF:2: [front] workers = many: allowed is a number from 0 to 64"
	refused '[front]\npoll = 4294967296\n' "a number from 0 to 10000"
	refused '[control]\nmode = 0999\n' "octal"
	refused '[control]\nmode = 07777\n' "octal"
	refused '[control]\ngroup = no-such-group\n' "name of a group"
	refused '[log]\nlevel = loud\n' "error, warning, note, info and debug"
	refused '[service]\nuser = no-such-user\n' "useradd"
	refused '[service]\nseccomp = yes\n' "on and off"
	refused '[client a]\nfront = kvm\n' "$CONF:2: [client a] front = kvm: allowed are xen and ivshmem"
	refused '[client a]\ndomain = b\n' "$CONF:2: [client a] domain: not with front = ivshmem"
	refused '[client a]\nfront = xen\nsocket = /tmp/s\n' "$CONF:3: [client a] socket: not with front = xen"
	refused '[client a]\nfront = xen\ndomain = a/b\n' "name of a domain or its UUID"
	refused '[client a]\nfront = xen\nregion = 128M\n' "$CONF:3: [client a] region = 134217728: allowed with front = xen"
	refused '[client a]\nfront = xen\n[client b]\nfront = xen\ndomain = a\n' "$CONF:5: [client b] domain = a: client a has it"
	refused '[client a]\nregion = 3M\n' "powers of two"
	refused '[client a]\nregion = 512K\n' "from 1048576 to 1073741824"
	refused '[client a]\nregion = 1%%\n' "region = 1%"
	refused '[client a]\nrings = 65\n' "a number from 1 to 64"
	refused '[client a]\nregion = 1M\nrings = 64\n' "$CONF:3: [client a] rings = 64: they need a region of"
	refused '[client a]\nweight = 0\n' "a number from 1 to 10000"
	refused '[client a]\nsocket_owner = no-such-user\n' "name of a user"
	refused '[client a]\nshared_auth = 1234\n' "UUIDs such as"
	refused '[client a]\nminimum = 2M\nmaximum = 1M\n' "$CONF:2: [client a] minimum = 2097152: allowed is at most maximum"
	refused "[client a]\nsocket = /$(printf 'x%.0s' {1..120})\n" "at most 107 characters"
	refused '[disk a]\n' "$CONF:1: [disk a]: size is missing; give size ="
	refused '[disk a]\nsize = 1000\n' "from 4096 to 17592186044416 bytes"
	refused '[disk a]\nsize = 10%%\n' "size = 10%"
	refused '[disk a]\nsize = 4097\n' "$CONF:2: [disk a] size = 4097: allowed are multiples of 4096"
	refused '[disk a]\nsize = 1M\nqueues = 9\n' "$CONF:3: [disk a] queues = 9: allowed is a number from 1 to 8"
	refused '[disk a]\nsize = 1M\novercommit = on\n' "allowed are yes and no"
	refused '[disk a]\nsize = 1M\nminimum = 2M\nmaximum = 1M\n' "$CONF:3: [disk a] minimum = 2097152: allowed is at most maximum"
	refused '[disk a]\nsize = 1M\nregion = 4M\n' "region: unknown key; allowed here are size, queues"
}

@test "unknown keys and sections, and lines that are neither, are errors" {
	refused '[pool]\npoolmax = 1G\n' "$CONF:2: [pool] poolmax: unknown key; allowed here are arena, pool_max"
	refused '[client a]\npool_max = 1G\n' "[client a] pool_max: unknown key; allowed here are front, domain, socket"
	refused '[pol]\npool_max = 1G\n' "$CONF:1: [pol]: unknown section; allowed are [pool]"
	refused 'pool_max = 1G\n' "$CONF:1: pool_max: a key before the first section"
	refused '[pool]\nwhat is this\n' "$CONF:2: neither a [section] nor"
	refused '[pool\n' "closing bracket"
	refused '[pool]\narena = /\x00\n' "zero byte"
	refused "[pool]\narena = /$(printf 'x%.0s' {1..300})\n" "longer than 190"
}

@test "clients: names, duplicates, sockets, the sum of the minimums" {
	refused '[client a]\n[client b]\n[client a]\n' "$CONF:3: [client a]: there is one already at $CONF:1"
	refused '[client]\n' "1 to 63 letters"
	refused '[client .a]\n' "begin with a dot"
	refused '[client a/b]\n' "1 to 63 letters"
	refused '[client ../../etc/passwd]\n' "1 to 63 letters"
	refused "[client $(printf 'x%.0s' {1..64})]\n" "1 to 63 letters"
	refused '[client a]\nsocket = /x\n[client b]\nsocket = /x\n' "$CONF:4: [client b] socket = /x: client a has it"
	refused '[control]\nsocket = /x\n[client b]\nsocket = /x\n' "that is the control socket"
	refused '[pool]\npool_max = 64M\n[client a]\nminimum = 40M\n[client b]\nminimum = 40M\n' \
		"$CONF:6: [client b] minimum = 41943040: the minimums up to here add up to 83886080, allowed is pool_max = 67108864"
}

@test "disks: names, sockets, and what the pool must be able to take" {
	refused '[disk]\n' "a disk's name has 1 to 63 letters"
	refused '[client a]\n[disk a]\nsize = 1M\n' "$CONF:2: [disk a]: a client has that name, at $CONF:1"
	refused '[disk a]\nsize = 1M\n[client a]\n' "$CONF:3: [client a]: a disk has that name, at $CONF:1"
	refused '[client a]\nsocket = /x\n[disk b]\nsize = 1M\nsocket = /x\n' "$CONF:5: [disk b] socket = /x: client a has it"
	refused '[pool]\npool_max = 64M\n[client a]\nminimum = 1M\n[disk b]\nsize = 32M\n[disk c]\nsize = 32M\n' \
		"$CONF:8: [disk c] size = 33554432: it can take 34078720 physical bytes when nothing compresses" \
		"that is 69206016, and pool_max is 67108864; make it smaller, raise pool_max, or give overcommit = yes"
	printf '[pool]\npool_max = 64M\n[disk b]\nsize = 32M\n[disk c]\nsize = 32M\novercommit = yes\n' >"$CONF"
	check
	[ "$status" -eq 0 ]
}

@test "peers: names, hosts, what can be lent" {
	refused '[peer]\nhost = a\n' "a peer's name has 1 to 63 letters"
	refused '[peer a]\n' "$CONF:1: [peer a]: host is missing; give host ="
	refused '[peer a]\nhost = a\n[peer a]\nhost = b\n' "$CONF:3: [peer a]: there is one already at $CONF:1"
	refused '[peer a]\nhost = http://a\n' "$CONF:2: [peer a] host = http://a: allowed is the name or the address of a host"
	refused '[peer a]\nhost = a\nport = 0\n' "allowed is a number from 1 to 65535"
	refused '[peers]\nname = a\n[peer a]\nhost = b\n' "$CONF:3: [peer a]: that is this host"
	refused '[peers]\ncopies = 3\n' "$CONF:2: [peers] copies = 3: allowed is a number from 1 to 2"
	refused '[pool]\npool_max = 64M\n[peers]\nname = a\nlend = 65M\n' \
		"$CONF:5: [peers] lend = 68157440: allowed is at most pool_max = 67108864"
	refused '[peers]\nname = .a\n' "allowed are 1 to 63 letters"
	refused "[peers]\nallow = $(printf 'x%.0s' {1..64})\n" "allowed are 64 names or patterns of at most 63 characters"
	refused '[peers]\ntls = here\n' "allowed is an absolute path"
	refused '[peers]\nhost = a\n' "host: unknown key; allowed here are name, address"
}

@test "a key twice in one file is an error, in a later file it is not" {
	refused '[pool]\npool_max = 64M\npool_max = 32M\n' "$CONF:3: [pool] pool_max: given already in line 2"
	mkdir "$DIR/conf.d"
	printf '[pool]\npool_max = 1G\n[client a]\nminimum = 512M\n' >"$CONF"
	printf '[pool]\npool_max = 256M\n' >"$DIR/conf.d/10-pool.conf"
	check
	[ "$status" -eq 78 ]
	says "allowed is pool_max = 268435456"
	printf '[pool]\npool_max = 2G\n[client b]\n' >"$DIR/conf.d/20-pool.conf"
	check
	[ "$status" -eq 0 ]
	says "clients: 2"
}

@test "conf.d: other names are left alone, wrong lines are said with their own file" {
	mkdir "$DIR/conf.d"
	: >"$CONF"
	echo nonsense >"$DIR/conf.d/old.conf.bak"
	echo nonsense >"$DIR/conf.d/.hidden.conf"
	check
	[ "$status" -eq 0 ]
	echo nonsense >"$DIR/conf.d/vm.conf"
	check
	[ "$status" -eq 78 ]
	says "$DIR/conf.d/vm.conf:1: neither"
}

@test "everything that is wrong is said, not the first thing only" {
	refused '[pool]\npool_max = x\n[log]\nlevel = x\n[client a]\nrings = x\n' ":2: " ":4: " ":6: "
}

@test "a file that is not there, or is a directory" {
	run "$TMEMD" --config "$DIR/none" --check-config
	[ "$status" -eq 78 ]
	says "$DIR/none:0: cannot be read: No such file or directory"
	run "$TMEMD" --config "$DIR" --check-config
	[ "$status" -eq 78 ]
	says "cannot be read"
}

@test "a wrong configuration starts nothing" {
	printf '[pool]\narena = %s/arena\npool_max = x\n' "$SHM" >"$CONF"
	run "$TMEMD" --config "$CONF"
	[ "$status" -eq 78 ]
	[ ! -e "$SHM/arena" ]
}
