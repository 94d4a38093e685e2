# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash disable=SC2034
#
# The same, and the host's kernel merges equal pages of the guests (KSM).
. "$vm_src/variants/host-zswap.sh"
hz_ksm=yes

variant_help() { echo 'host-zswap, and the host merges equal pages of the guests'; }
