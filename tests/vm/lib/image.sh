# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
#
# File systems for workloads: ext4 images made without mounting, and the modules that a stock guest
# needs for them. Sourced by workloads, after guests.sh; not run.
#
#   image_build OUT MB DIRECTORY  an ext4 image of that size with the directory's contents
#   image_copy FROM TO        a copy that is on the disk, its blocks written
#   image_modules             print the module files that ext4 needs in guests of $flavour
#   image_setup               print the guest's commands that load those, from /

image_build()
{
	local out=$1 mb=$2 directory=$3

	rm -f "$out" && truncate -s "${mb}M" "$out" || return 1
	# cleancache asks for pages of file systems with 4 KiB blocks only. Without a journal a run
	# depends less on the time that it takes.
	PATH=$PATH:/sbin:/usr/sbin mke2fs -q -t ext4 -b 4096 -O ^has_journal -m 0 \
		-E lazy_itable_init=0 -d "$directory" "$out" ||
		{ vm_say "the file system $out could not be made"; return 1; }
}

image_copy() { dd if="$1" of="$2" bs=1M conv=fsync status=none; }

image_modules() { kernel_modules "$flavour" ext4; }

image_setup()
{
	local file

	image_modules | while read -r file; do
		printf 'insmod /%s\n' "$(basename "$file")"
	done
}
