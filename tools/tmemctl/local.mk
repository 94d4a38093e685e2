# tmemctl.
bin_PROGRAMS += tmemctl
tmemctl_SOURCES = \
	proto/control.h proto/size.h \
	tools/tmemctl/call.c \
	tools/tmemctl/print.c \
	tools/tmemctl/tmemctl.c \
	tools/tmemctl/tmemctl.h
tmemctl_CPPFLAGS = -I$(top_srcdir) -I$(top_builddir) $(JANSSON_CFLAGS)
tmemctl_LDADD = $(JANSSON_LIBS)
