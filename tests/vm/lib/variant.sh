# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
#
# What a variant of tests/vm/consolidate is: a way to share the budget of host memory out. Each file
# variants/NAME.sh is sourced after these defaults and replaces what differs. Names of guests are
# given as arguments where it says NAME... The driver sets budget_mb, guests (their number),
# memory_mb (budget_mb / guests), swap_mb and flavour (of the kernel).
#
#   variant_help            one line
#   variant_can             succeeds, or prints the sentence why it cannot run here, and fails
#   variant_memory          sets guest_mb (what QEMU is given, each) and host_mb (the host's share:
#                           pool and all that belongs to it); their sum must be the budget, unless
#                           guest_mb_held says that the guests are held to less than they see.
#                           host_swap_kb: of the host's swap that may be in use at the start
#   variant_host_start NAME...  before the guests boot
#   variant_boot NAME ARGUMENT...  boots one: guest_start unless something goes around it
#   variant_qemu NAME       prints QEMU arguments, one a line
#   variant_script          prints the guest's functions:
#                             variant_start   swap on, modules; the measured part comes later
#                             variant_held    prints pages held outside the guest's page tables
#                             variant_sample  prints logical and physical bytes held in the guest
#   variant_ready NAME...   the guests are up and wait for the beginning
#   variant_held            pages that the host's side holds, must be 0 then
#   variant_sample NAME...  prints "LOGICAL PHYSICAL SERVICE": bytes held now, and the memory that
#                           the host's service really has
#   variant_ticks           CPU of the host's service so far, in clock ticks
#   variant_note            what the record of a run should say beside the figures
#   variant_disk            sectors read and written so far on a disk of the host's own
#   variant_host_stop       everything of the host's side goes; may be called at any time, twice

variant_defaults()
{
	unset guest_mb_held host_swap_kb
	variant_can() { :; }
	variant_memory() { guest_mb=$memory_mb host_mb=0; }
	variant_host_start() { :; }
	variant_boot() { guest_start "$@"; }
	variant_qemu() { :; }
	variant_ready() { :; }
	variant_held() { echo 0; }
	variant_sample() { sum_samples "$@"; }
	variant_ticks() { echo 0; }
	variant_disk() { echo 0 0; }
	variant_note() { :; }
	variant_host_stop() { :; }
	variant_script()
	{
		cat <<-'EOS'
			variant_start() { swap_on vda; }
			variant_held() { echo 0; }
		EOS
	}
}

# Of what the guests hold themselves: the sum of the last sample of each.
sum_samples()
{
	local name sample logical=0 physical=0

	for name; do
		sample=$(guest_value "$name" sample)
		sample=${sample:-0,0}
		logical=$((logical + ${sample%,*}))
		physical=$((physical + ${sample#*,}))
	done
	echo $logical $physical 0
}

# A variant that needs the kernel with the rivals in it.
needs_evidence_kernel()
{
	[ "$flavour" = evidence ] && return 0
	echo "the $flavour kernel has neither zram nor zswap: --kernel evidence"
	return 1
}

variant_load()
{
	local file=$vm_src/variants/$1.sh

	variant_defaults
	[ -f "$file" ] || { vm_say "there is no variant '$1'; see --help"; return 1; }
	. "$file"
}

variant_names() { (cd "$vm_src/variants" && printf '%s\n' *.sh | sed 's/\.sh$//'); }
