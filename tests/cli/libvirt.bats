# SPDX-License-Identifier: GPL-2.0-or-later
# tmemctl attach and detach without a machine that runs, and the hook as libvirt calls it. With
# machines that run: tests/libvirt.

load lib

HOOK=$PWD/libvirt-hook

setup_libvirt()
{
	[ -x "$PWD/tmemctl-libvirt" ] || skip "built without libxml2"
	export TMEMCTL_LIBEXEC=$PWD XDG_CACHE_HOME=$DIR XDG_RUNTIME_DIR=$DIR
	URI=test:///default
}

needs_libvirt()
{
	setup_libvirt
	! ldd "$PWD/tmemctl-libvirt" | grep -q libvirt.so && skip "built without libvirt"
	return 0
}

# fails STATUS TEXT ARGUMENT...
fails()
{
	local expected=$1 text=$2

	shift 2
	run ctl "$@"
	[ "$status" -eq "$expected" ] || { echo "status $status: $*: $output"; return 1; }
	says "$text"
}

@test "attach, detach: wrong usage" {
	setup_libvirt
	fails 2 "an argument is missing" attach
	fails 2 "an argument is missing" attach $URI
	fails 2 "too many" attach $URI a b
	fails 2 "an argument is missing" detach $URI
	fails 2 "does not have" attach $URI test --remove-disk
	fails 2 "does not have" detach $URI test --size 1M
	fails 2 "does not have" detach $URI test --print
	fails 2 "does not have" detach $URI test --required
	fails 2 "does not have" disk create x --size 1M --live
	fails 2 "does not have" list --config
	fails 2 "does not have" list --name x
	fails 2 "are two devices" attach $URI test --nbd --ring
	fails 2 "are two devices" detach $URI test --nbd --ring
	fails 2 "only --socket can be given" attach $URI test --nbd --size 1M
	fails 2 "from tmemd's configuration" attach $URI test --ring --size 1M
	fails 2 "from tmemd's configuration" attach $URI test --ring --required
	fails 2 "a number of bytes" attach $URI test --size much
	fails 2 "a number of queues" attach $URI test --size 1M --queues many
	fails 2 "name of a user" attach $URI test --size 1M --owner no-such-user
	fails 2 "must be UTF-8" attach $URI test --size 1M --socket $'/tmp/\xff'
}

@test "attach: the program that does it is missing" {
	TMEMCTL_LIBEXEC=$DIR fails 3 "built without libxml2" attach test:///default test
}

@test "attach: what cannot be reached or is not there" {
	needs_libvirt
	fails 2 "tmemctl attach xl: DOMAIN" attach xen:///system test
	fails 2 "allowed is qemu:///system" attach lxc:///system test
	fails 2 "allowed is qemu:///system" attach nonsense test
	fails 2 "is another host" attach qemu+ssh://root@127.0.0.1/system test
	fails 3 "libvirt: " attach qemu:///nonsense test
	fails 1 'no machine with the name or UUID "tst"; there are: test' attach $URI tst
	fails 1 "no machine with the name or UUID" detach $URI 6695eb01-f6a4-8304-79aa-97f2502e1930
	fails 1 "nothing that is meant was attached there" detach $URI test --config
	fails 2 "cannot be the name of a disk" attach $URI test --size 1M --name ../x
	fails 3 "is tmemd running?" attach $URI test --size 1M --config
	fails 3 "is tmemd running?" attach $URI test --ring --config
	fails 1 "its memory is not shared" attach $URI test --size 1M --live --print
	fails 1 "start tmem-nbd@tmem-test.service" attach $URI test --nbd --live
}

@test "attach --print: the XML, by name and by UUID, without tmemd; nothing changes" {
	needs_libvirt
	for vm in test 6695eb01-f6a4-8304-79aa-97f2502e193f; do
		run ctl attach $URI $vm --size 1G --queues 2 --owner root --required --print
		[ "$status" -eq 0 ]
		says '<source type="memfd"/>'
		says '<access mode="shared"/>'
		says 'xmlns:tmem="urn:tmemd:libvirt"'
		says '<tmem:disk name="tmem-test" socket="/run/tmem/tmem-test.sock" size="1073741824" queues="2" uid="0" required="yes"/>'
		says '<source type="unix" path="/run/tmem/tmem-test.sock">'
		says '<reconnect enabled="yes" timeout="1"/>'
		says 'queues="2"'
	done
	run ctl attach $URI test --nbd --name x --socket "/tmp/a'<&>\".sock" --print
	[ "$status" -eq 0 ]
	says "/tmp/a'&lt;&amp;&gt;&quot;.sock"
	says '<serial>x</serial>'
	run ctl attach $URI test --size 1M --print --json
	[ "$(json 'sorted(d)' <<< "$output")" = "['device', 'memory_backing', 'metadata']" ]
}

@test "attach: the disk and the client that tmemd has" {
	needs_libvirt
	write_conf
	start_tmemd
	ctl disk create web --size 8M --socket "$DIR/web.sock" --mode 0600
	run ctl attach $URI test --name web --print
	says "path=\"$DIR/web.sock\""
	says 'size="8388608"'
	says 'mode="0600"'
	run ctl attach $URI test --ring --name vm1 --print
	says "<server path=\"$DIR/vm1.sock\"/>"
	says '<msi vectors="2" ioeventfd="on"/>'
	fails 1 "tmemd has no client web" attach $URI test --ring --name web --config
	fails 2 "say how large" attach $URI test --config
	run ctl attach $URI test --name tmem-x --size 1M --socket "$DIR/x.sock" --config --json
	[ "$status" -eq 0 ]
	[ "$(json 'd["vm"], d["kind"], d["name"], d["changed"], d["live"], d["config"]' <<< "$output")" = \
		"('test', 'disk', 'tmem-x', True, False, True)" ]
	[ -S "$DIR/x.sock" ]
	fails 1 'another "size"' attach $URI test --name tmem-x --size 2M --socket "$DIR/x.sock" --config
	fails 1 "can take" attach $URI test --name tmem-y --size 1T --socket "$DIR/y.sock" --config
	[ ! -e "$DIR/y.sock" ]
	stop_tmemd
}

# ---- The hook --------------------------------------------------------------------------------

# domain ATTRIBUTES: the XML that libvirt gives, with a disk in its metadata.
domain()
{
	printf "<domain type='qemu'><name>web</name>
		<uuid>01234567-89ab-cdef-0123-456789abcdef</uuid>
		<metadata><t:tmem xmlns:t='urn:tmemd:libvirt'>%s</t:tmem></metadata>
		<seclabel type='static' model='dac'><label>+4242:+4242</label></seclabel></domain>" "$1"
}

DISK() { printf "<t:disk name='web' size='%s' socket='%s/web.sock' %s/>" "${2:-8M}" "$DIR" "${1:-}"; }

# hook XML OPERATION SUBOPERATION [EXTRA]
hook()
{
	domain "$1" | "$HOOK" --socket "$SOCKET" --state "$DIR/state" web "$2" "$3" "${4:--}"
}

disk()
{
	ctl disk list --json | json "[($1) for d in d['disks'] if d['name'] == 'web']"
}

# Something on the disk, as a guest leaves it.
fill()
{
	"$PWD/tests/cli/diskfill" "$DIR/web.sock"
	for _ in $(seq 100); do
		[ "$(disk 'd["state"]')" = "['waiting']" ] && return 0
		sleep 0.05
	done
	return 1
}

@test "hook: help, version and wrong usage" {
	setup_libvirt
	run "$HOOK" --help
	[ "$status" -eq 0 ]
	says "Usage: libvirt-hook"
	run "$HOOK" --version
	[ "$status" -eq 0 ]
	run "$HOOK" web
	[ "$status" -eq 2 ]
	run "$HOOK" --no-such-option
	[ "$status" -eq 2 ]
}

@test "hook: makes the disk as it is recorded, for the user of the machine" {
	setup_libvirt
	write_conf
	start_tmemd
	hook "$(DISK "queues='2' weight='7' minimum='1M'")" prepare begin
	[ "$(disk 'd["size"], d["queues"], d["weight"], d["minimum_bytes"], d["uid"]')" = \
		"[(8388608, 2, 7, 1048576, 4242)]" ]
	# Once more; and one that was changed by command meanwhile stays so.
	ctl disk resize web 16M
	run hook "$(DISK)" prepare begin
	[ "$status" -eq 0 ]
	[ -z "$output" ]
	[ "$(disk 'd["size"]')" = "[16777216]" ]
	stop_tmemd
}

@test "hook: what it has nothing to do with passes in silence" {
	setup_libvirt
	for operation in "start begin" "started begin" "stopped end" "reconnect begin" "attach begin" "no-such thing"; do
		run hook "$(DISK "required='yes'")" $operation
		[ "$status" -eq 0 ]
		[ -z "$output" ]
	done
	run "$HOOK" --socket "$SOCKET" web prepare begin - <<< '<domain><name>web</name></domain>'
	[ "$status" -eq 0 ]
	[ -z "$output" ]
	# What is printed on standard output would become the machine's XML.
	[ -z "$(hook "$(DISK)" restore begin 2> /dev/null)" ]
	[ -z "$(hook "$(DISK)" migrate begin 2> /dev/null)" ]
}

@test "hook: without tmemd only a required disk keeps the machine from starting" {
	setup_libvirt
	run hook "$(DISK)" prepare begin
	[ "$status" -eq 0 ]
	says "is tmemd running?"
	run hook "$(DISK "required='yes'")" prepare begin
	[ "$status" -eq 1 ]
	says "it is required, so the machine does not start"
	run hook "$(DISK "required='yes'")" release end
	[ "$status" -eq 0 ]
	run hook "<t:nbd name='web' required='yes'/>" prepare begin
	[ "$status" -eq 1 ]
	says "start tmem-nbd@web.service"
	write_conf
	start_tmemd
	run hook "$(DISK "required='yes'" 1T)" prepare begin
	[ "$status" -eq 1 ]
	says "ask for overcommit"
	run hook "$(DISK "" 1T)" prepare begin
	[ "$status" -eq 0 ]
	stop_tmemd
}

@test "hook: a service that is stuck costs two seconds" {
	setup_libvirt
	write_conf
	start_tmemd
	kill -STOP "$PID"
	run hook "$(DISK "required='yes'")" prepare begin
	[ "$status" -eq 1 ]
	run hook "$(DISK)" prepare begin
	[ "$status" -eq 0 ]
	[ -n "$output" ]
	# It ends by itself, also when libvirt gives no XML.
	run timeout 60 "$HOOK" web prepare begin - < <(sleep 30)
	[ "$status" -eq 0 ]
	kill -CONT "$PID"
	stop_tmemd
}

@test "hook: odd XML" {
	setup_libvirt
	write_conf
	start_tmemd
	odd()
	{
		run "$HOOK" --socket "$SOCKET" --state "$DIR/state" web prepare begin -
		[ "$status" -eq 0 ] || { echo "status $status"; return 1; }
	}
	odd < /dev/null
	odd <<< 'urn:tmemd:libvirt'
	says "no well-formed XML"
	odd <<< "<!DOCTYPE domain [<!ENTITY x 'y'>]><domain><metadata><t xmlns='urn:tmemd:libvirt'/></metadata></domain>"
	says "document type"
	# More than it looks at, in a bounded time and memory.
	odd < <(printf '<domain><!-- urn:tmemd:libvirt '; head -c 200M /dev/zero | tr '\0' x)
	says "more than"
	odd < <(domain "<t:disk name='web' size='much'/>")
	says "size of a <disk> must be"
	run hook "<t:disk name='web' size='much' required='yes'/>" prepare begin
	[ "$status" -eq 1 ]
	[ "$(ctl disk list --json | json 'd["disks"]')" = "[]" ]
	stop_tmemd
}

@test "hook: content goes with a life that is over, and is kept for one that may go on (case 35)" {
	setup_libvirt
	write_conf
	start_tmemd
	hook "$(DISK)" prepare begin
	fill
	held=$(disk 'd["pages_persistent"]')
	[ "$held" != "[0]" ]
	# The reasons that libvirt gives, and none.
	for reason in - unknown saved migrated failed daemon "from snapshot" no-such-reason; do
		run hook "$(DISK)" release end "$reason"
		[ "$status" -eq 0 ]
		says "disk web keeps"
		[ "$(disk 'd["pages_persistent"]')" = "$held" ]
	done
	# A guest that is restored goes on with it, also one that comes back by migration.
	for operation in restore migrate; do
		hook "$(DISK)" $operation begin
		hook "$(DISK)" prepare begin
		[ "$(disk 'd["pages_persistent"]')" = "$held" ]
	done
	# One that boots does not.
	hook "$(DISK)" prepare begin
	[ "$(disk 'd["pages_persistent"]')" = "[0]" ]
	for reason in shutdown destroyed crashed; do
		fill
		run hook "$(DISK)" release end $reason
		[ "$status" -eq 0 ]
		[ -z "$output" ]
		[ "$(disk 1)" = "[]" ]
		hook "$(DISK)" prepare begin
	done
	stop_tmemd
}

@test "hook: a guest is not restored without the disk that it had (case 35)" {
	setup_libvirt
	write_conf
	start_tmemd
	run hook "$(DISK)" restore begin
	[ "$status" -eq 1 ]
	says "it would go on with wrong memory"
	# Another hook may have said no more; the mark says what prepare is for.
	run hook "$(DISK)" prepare begin
	[ "$status" -eq 1 ]
	[ "$(disk 1)" = "[]" ]
	# The operator knows better.
	hook "$(DISK)" restore begin || true
	ctl disk create web --size 8M --socket "$DIR/web.sock"
	hook "$(DISK)" restore begin
	hook "$(DISK)" prepare begin
	ctl disk remove web
	# Nothing of it is left for a guest that boots.
	hook "$(DISK)" prepare begin
	[ "$(disk 'd["state"]')" = "['waiting']" ]
	stop_tmemd
}

@test "hook: a disk of the configuration stays as it is" {
	setup_libvirt
	write_conf
	printf '[disk web]\nsize = 8M\nsocket = %s/web.sock\n' "$DIR" >> "$CONF"
	start_tmemd
	fill
	hook "$(DISK)" prepare begin
	hook "$(DISK)" release end destroyed
	[ "$(disk 'd["origin"]')" = "['configuration']" ]
	stop_tmemd
}
