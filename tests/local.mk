# Tests and benchmarks.
include tests/unit/local.mk
include tests/service/local.mk
include tests/vm/local.mk
include tests/bench/local.mk
