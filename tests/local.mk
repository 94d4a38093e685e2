# Tests and benchmarks.
include tests/cli/local.mk
include tests/members/local.mk
include tests/model/local.mk
include tests/tier/local.mk
include tests/unit/local.mk
include tests/service/local.mk
include tests/start/local.mk
include tests/vm/local.mk
include tests/peers/local.mk
include tests/xen/local.mk
include tests/libvirt/local.mk
include tests/bench/local.mk
include tests/fuzz/local.mk
