# tmemctl; and tmemctl-libvirt from the same sources, see tools/libvirt.
bin_PROGRAMS += tmemctl
TMEMCTL_SOURCES = \
	proto/control.h proto/size.h \
	tools/tmemctl/call.c \
	tools/tmemctl/disk.c \
	tools/tmemctl/doctor.c \
	tools/tmemctl/doctor.h \
	tools/tmemctl/doctor_guest.c \
	tools/tmemctl/doctor_host.c \
	tools/tmemctl/doctor_process.c \
	tools/tmemctl/doctor_service.c \
	tools/tmemctl/look.c \
	tools/tmemctl/peer.c \
	tools/tmemctl/print.c \
	tools/tmemctl/stream.c \
	tools/tmemctl/tmemctl.c \
	tools/tmemctl/tmemctl.h \
	tools/tmemctl/xl.c
tmemctl_SOURCES = $(TMEMCTL_SOURCES) tools/tmemctl/elsewhere.c
tmemctl_CPPFLAGS = -I$(top_srcdir) -I$(top_builddir) $(JANSSON_CFLAGS) \
	-DTMEM_LIBEXECDIR='"$(pkglibexecdir)"'
tmemctl_LDADD = $(JANSSON_LIBS)
