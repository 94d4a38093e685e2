# The service: base, store, front, control, then tmemd itself.
noinst_LIBRARIES += libbase.a
libbase_a_SOURCES = \
	proto/tmem_abi.h \
	hyp/base/clock.h \
	hyp/base/counters.c hyp/base/counters.h \
	hyp/base/fault.c hyp/base/fault.h \
	hyp/base/log.c hyp/base/log.h

include hyp/store/local.mk
include hyp/front/local.mk
include hyp/control/local.mk
