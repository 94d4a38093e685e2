# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
#
# The workload `make` of tests/vm/consolidate: a parallel build with GNU make and the host's C
# compiler, on a disk; the program that comes out must say what the same program built on the host
# says. With -j1 there is no pressure, each further job needs 10 to 20 MB more: the measure of the
# original zcache, a kernel build with rising -jN, made small. Guests of 96 MB suit it.
. "$vm_src/lib/image.sh"

make_units() { echo $(((8 * WL_SCALE + 99) / 100)); }

# By default gcc fits its garbage collection to the memory of the machine: then a guest with less
# would do other work. No collection below 128 MB, wherever it runs.
make_flags='-O1 -pipe --param ggc-min-expand=100 --param ggc-min-heapsize=131072'

workload_help() { echo 'a parallel build (--jobs) of a C program with gcc'; }

# Functions with loops that the optimiser has to work on; seeded by the number of the unit.
make_unit()
{
	awk -v unit="$1" '
	function random(n) { return int(rand() * n) }
	BEGIN {
		srand(unit)
		print "#include <stdint.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>"
		for (f = 0; f < 8; f++) {
			printf "\nstatic uint32_t part_%d(uint32_t a, uint32_t b)\n{\n", f
			print "\tuint32_t t[8] = {a, b, a ^ b, a + b};\n"
			for (i = 0; i < 12; i++) {
				printf "\tfor (int i = %d; i < 8; i++)\n", random(3)
				printf "\t\tt[i] += (t[(i + %d) %% 8] ^ %dU) * (t[%d] | %dU);\n",
					1 + random(7), random(1e6), random(8), random(1e6)
			}
			print "\treturn t[0] ^ t[1] ^ t[2] ^ t[3] ^ t[4] ^ t[5] ^ t[6] ^ t[7];\n}"
		}
		printf "\nuint32_t unit_%d(uint32_t x);\nuint32_t unit_%d(uint32_t x)\n{\n", unit, unit
		for (f = 0; f < 8; f++)
			printf "\tx = part_%d(x, %dU);\n", f, f
		print "\treturn x;\n}"
	}'
}

make_project() # directory units compiler
{
	local unit units

	units=$(seq "$2")
	for unit in $units; do make_unit "$unit" > "$1/unit_$unit.c"; done
	{
		printf '#include <stdint.h>\n#include <stdio.h>\n'
		printf 'uint32_t unit_%d(uint32_t x);\n' $units
		printf 'int main(void)\n{\n\tuint32_t x = 1;\n\n'
		printf '\tx = unit_%d(x);\n' $units
		printf '\tprintf("%%u\\n", (unsigned)x);\n\treturn 0;\n}\n'
	} > "$1/main.c"
	{
		printf 'CC = %s\nCFLAGS = %s\n' "$3" "$make_flags"
		printf 'program: main.o%s\n\t$(CC) -o $@ $^\n' "$(printf ' unit_%d.o' $units)"
	} > "$1/Makefile"
}

# Everything that a build opens: the programs and what they are linked against, the headers, what the
# linker reads.
make_toolchain() # compiler project root
{
	local cc=$1 project=$2 root=$3 name file

	{
		for name in cc1 collect2 as ld; do
			file=$("$cc" -print-prog-name=$name)
			command -v "$file"
		done
		command -v "$cc" make sh
		"$cc" -print-file-name=liblto_plugin.so
		"$cc" -print-prog-name=lto-wrapper
	} > "$root/programs"
	{
		cat "$root/programs"
		xargs -n 1 ldd < "$root/programs" 2> /dev/null | grep -o '/[^ ]*'
		"$cc" $make_flags -M "$project/unit_1.c" | tr -s ' \\' '\n' | grep '^/usr'
		"$cc" -Wl,-t -o /dev/null "$project/main.o" "$project"/unit_*.o | grep '^/'
	} | tr -d '()' | sort -u | while read -r file; do
		mkdir -p "$root$(dirname "$file")" && cp -L "$file" "$root$file" || exit 1
	done && rm "$root/programs"
}

workload_build()
{
	local dir=$1 root=$1/root project=$1/root/project

	mkdir -p "$project" "$root"/{dev,proc,tmp}
	make_project "$project" "$(make_units)" "$kernel_cc"
	nice make -s -C "$project" -j"$(nproc)" || { vm_say 'the project does not build here'; return 1; }
	"$project/program" > "$dir/expected" && make_toolchain "$kernel_cc" "$project" "$root" ||
		{ vm_say 'the compiler could not be copied'; return 1; }
	rm "$project"/*.o "$project/program"
	image_build "$dir/base.img" $(($(du -sm "$root" | cut -f1) + 40)) "$root" && rm -rf "$root"
}

workload_files() { image_modules; }

workload_drive()
{
	image_copy "$1/base.img" "$1/$2.img" && echo "$1/$2.img"
}

workload_script()
{
	cat <<-EOS
		make_expected=$(cat "$workload_dir/expected")
		workload_setup() {
			$(image_setup)
			mount -t ext4 /dev/vdb /mnt && mount --bind /dev /mnt/dev && mount --bind /proc /mnt/proc
		}
	EOS
	cat <<-'EOS'
		workload_run() {
			local got
			chroot /mnt make -s -C /project -j$WL_JOBS || return 1
			got=$(chroot /mnt /project/program)
			[ "$got" = "$make_expected" ] || { echo "program: $got, not $make_expected"; return 1; }
			sync
			say built=$got
		}
	EOS
}
