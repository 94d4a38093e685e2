# Around xl: the verbs that it had for tmem; and the memory of dom0.
dist_bin_SCRIPTS = tools/xen/xl-tmem

if HAVE_XENCONTROL
sbin_PROGRAMS += tmem-balloon
tmem_balloon_SOURCES = \
	proto/control.h proto/size.h \
	tools/tmemctl/call.c tools/tmemctl/tmemctl.h \
	tools/xen/balloon.c \
	tools/xen/balloon.h \
	tools/xen/balloon_config.c \
	tools/xen/balloon_host.c \
	tools/xen/balloon_rules.c \
	tools/xen/balloon_service.c
tmem_balloon_CPPFLAGS = -I$(top_srcdir) -I$(top_builddir) $(JANSSON_CFLAGS) $(INIH_CFLAGS) \
	$(XENCONTROL_CFLAGS)
tmem_balloon_LDADD = $(JANSSON_LIBS) $(INIH_LIBS) $(XENCONTROL_LIBS)

# Not enabled by itself: its configuration is the operator's to write.
nodist_systemdsystemunit_DATA += tmem-balloon.service
endif
dist_pkgdata_DATA += tools/xen/balloon.conf
EXTRA_DIST += tools/xen/tmem-balloon.service.in
CLEANFILES += tmem-balloon.service

tmem-balloon.service: tools/xen/tmem-balloon.service.in Makefile
	$(AM_V_GEN)sed -e 's|@sbindir[@]|$(sbindir)|' -e 's|@sysconfdir[@]|$(sysconfdir)|' \
		'$(srcdir)/tools/xen/tmem-balloon.service.in' > '$@'
