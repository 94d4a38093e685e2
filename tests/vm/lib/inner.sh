# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
#
# A guest that plays the host: the service runs inside. Sourced after guests.sh, not run.
#
#   inner_programs IMAGE PROGRAM...   add programs of this system, with the libraries that they
#                                     need, to an image; they are found by name
#   inner_tmemd                       print functions for the guest's script:
#       host_ready SIZE          user, directories and the arena's mount of SIZE
#       configure [LINE...]      configuration with these lines
#       configure_load           adds the client vm1, for load
#       tmemd_run [GROUP]        start it as its unit would, in the control group (a directory)
#       tmemd_end                stop it and remove the arena
#       threads                  threads that have all the flags of an IO flusher, of how many: 5/5
#       workers                  the niceness of each worker
#       status KEY               of tmemd, from /proc/PID/status
#       service KEY              a number of the service, from `tmemctl stat`
#       client KEY               one of the client
#       load PAGES               start ringload; unload: end it, false unless all pages are right
#       done_of WHAT             how much it has done: put, hit, refused; slowest: ms
#       more WHAT NUMBER SECONDS wait until it has done so much more
#       quiet                    false when the kernel had to kill somebody, or somebody hung
#   inner_need                the case's beginning: skips when something is missing
#   inner_boot SCRIPT [QEMU ARGUMENT...]
#                             boot such a guest, 256 MB, and wait until it has ended well

inner_programs()
{
	local image=$1 root program file

	shift
	root=$(mktemp -d "$vm_work/inner.XXXXXX") || return 1
	mkdir -p "$root/bin"
	chmod 755 "$root" # it becomes the mode of /
	for program; do
		program=$(command -v "$program") || return 1
		cp "$program" "$root/bin/" || return 1
		while read -r file; do
			[ -e "$root$file" ] || install -D "$file" "$root$file" || return 1
		done < <(ldd "$program" | grep -o '/[^ ]*')
	done
	# An initramfs may be several archives, one after the other.
	(cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >> "$image"
	rm -rf "$root"
}

inner_tmemd()
{
	cat <<'INNER'
host_ready()
{
	mkdir -p /etc /run/tmemd /run/tmem
	echo 'root:x:0:0:::' > /etc/passwd
	echo 'tmemd:x:999:999:::' >> /etc/passwd
	echo 'tmemd:x:999:' > /etc/group
	chown 999:999 /run/tmem
	local options="size=$1,mode=0700,uid=999,gid=999"

	# A kernel without huge pages, as a PV guest of Xen, knows no such option.
	mount -t tmpfs -o "$options,huge=advise" tmemd /run/tmemd 2> /dev/null ||
		mount -t tmpfs -o "$options" tmemd /run/tmemd
}

configure()
{
	printf '[service]\nuser = tmemd\n' > /etc/tmemd.conf
	printf '%s\n' "$@" >> /etc/tmemd.conf
}

configure_load()
{
	printf '[client vm1]\nsocket_mode = 0666\nregion = 2M\nrings = 1\n' >> /etc/tmemd.conf
}

# What the unit says, as far as it goes without systemd. (Busybox has a setpriv that can less.)
tmemd_run()
{
	(
		[ -z "${1:-}" ] || sh -c 'echo $PPID' > "$1/cgroup.procs"
		exec /bin/setpriv --no-new-privs --inh-caps=-all \
			--bounding-set=-all,+sys_resource,+ipc_lock,+chown,+setuid,+setgid \
			tmemd --config /etc/tmemd.conf
	) &
	tmemd=$!
	for _ in $(seq 300); do
		tmemctl version > /dev/null 2>&1 && return
		kill -0 $tmemd 2> /dev/null || break
		sleep 0.1
	done
	echo 'tmemd does not answer'
	return 1
}

tmemd_end()
{
	kill $tmemd
	wait $tmemd
	rm -rf /run/tmemd/*
}

threads()
{
	sed 's/.*) //' /proc/$tmemd/task/*/stat | awk '
		{ n++; f += int($7 / 524288) % 4 == 3 } END { print f "/" n }'
}
workers() { sed -n 's/.*(tmemd-worker) //p' /proc/$tmemd/task/*/stat | awk '{ print $17 }' | sort -u | tr "\n" ,; }
status() { awk -v k="$1:" '$1 == k { print $2 }' /proc/$tmemd/status; }
service() { tmemctl stat | awk -v k="$1" '/^client/ { exit } $1 == k { print $2 }'; }
client() { tmemctl stat vm1 | awk -v k="$1" '$1 == k { print $2 }'; }

load()
{
	rm -f /tmp/stop
	ringload /run/tmem/vm1.sock "$1" /tmp/stop > /tmp/load &
	loader=$!
	until grep -q '^load' /tmp/load; do sleep 0.1; done
}
done_of() { sed -n "s/.* $1=\([0-9]*\).*/\1/p" /tmp/load | tail -n 1; }
# Waits until the load has done so much more of something: put, hit or refused.
more() # WHAT NUMBER SECONDS
{
	local from n

	from=$(done_of "$1")
	for _ in $(seq "$3"); do
		n=$(($(done_of "$1") - from))
		[ $n -ge "$2" ] && return
		sleep 1
	done
	echo "only $n more '$1' in $3 s"
	return 1
}
unload() { touch /tmp/stop; wait $loader && grep '^intact' /tmp/load; }
quiet() { ! dmesg | grep -E 'Out of memory|oom-kill|blocked for more'; }
slowest() { sed -n 's/.*slowest_ms=//p' /tmp/load | sort -n | tail -n 1; }
INNER
}

inner_need()
{
	ringload=$vm_build/tests/service/ringload
	need stock
	[ -x "$ringload" ] || skip "no $ringload: make check-vm builds it"
	[ -x /usr/bin/setpriv ] || skip 'setpriv is not installed'
}

inner_boot()
{
	local script=$1 image=$vm_work/guest.img

	shift
	check 'no image' guest_image stock "$image" "$script"
	check 'no programs' inner_programs "$image" "$TMEMD" "$TMEMCTL" "$ringload" /usr/bin/setpriv
	guest_start host stock 256 2 "$image" "$@"
	check 'the guest failed' guest_wait_end host 400
}
