# What hyp/control builds.
noinst_LIBRARIES += libcontrol.a
libcontrol_a_CPPFLAGS = $(AM_CPPFLAGS) $(EVENT_CFLAGS) $(INIH_CFLAGS) $(JANSSON_CFLAGS) \
	$(SYSTEMD_CFLAGS) $(SECCOMP_CFLAGS)
libcontrol_a_SOURCES = \
	proto/control.h proto/size.h \
	hyp/control/commands.c \
	hyp/control/config.c \
	hyp/control/config_check.c \
	hyp/control/config_priv.h \
	hyp/control/config_value.c \
	hyp/control/control.h \
	hyp/control/control_priv.h \
	hyp/control/disks.c \
	hyp/control/domains.c \
	hyp/control/metrics.c \
	hyp/control/notify.c \
	hyp/control/peers.c \
	hyp/control/process.c \
	hyp/control/seccomp.c \
	hyp/control/server.c \
	hyp/control/streams.c
