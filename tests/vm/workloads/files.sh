# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
#
# The workload `files` of tests/vm/consolidate: reads more files than fit in memory, several times,
# in another order each time. All pressure is on clean pages of the page cache. They can be kept in
# a pool by a kernel with cleancache; one without drops them, and reads them again.
. "$vm_src/lib/image.sh"

files_mb() { echo $((WL_MEMORY_MB * 150 * WL_SCALE / 10000)); }

# Other files in each guest, lest a variant that merges equal pages gains from the test's making.
files_seed() { echo $(($1 * 1000000 + 1)); }

workload_help() { echo 'eight readings of stamped files, 150 % of memory'; }

workload_build()
{
	local dir=$1 nr

	vm_programs || return 1
	for ((nr = 0; nr < WL_GUESTS; nr++)); do
		mkdir -p "$dir/files"
		"$vm_work/bin/filestamp" write "$dir/files" "$(files_mb)" "$(files_seed $nr)" &&
			image_build "$dir/$nr.part" $(($(files_mb) + 24)) "$dir/files" &&
			image_copy "$dir/$nr.part" "$dir/$nr.img" || return 1
		rm -rf "$dir/files" "$dir/$nr.part"
	done
}

workload_files() { image_modules; }

workload_drive() { echo "$1/$2.img"; }

workload_script()
{
	cat <<-EOS
		files_mb=$(files_mb)
		workload_setup() {
			$(image_setup)
			mount -t ext4 -o ro /dev/vdb /mnt
		}
	EOS
	cat <<-'EOS'
		workload_run() {
			local before
			before=$(sectors_read vdb)
			filestamp read /mnt $files_mb $((WL_GUEST_NR * 1000000 + 1)) 8 || return 1
			say files_mb=$files_mb file_sectors=$(($(sectors_read vdb) - before))
		}
	EOS
}
