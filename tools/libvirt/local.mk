# Virtual machines of libvirt: what `tmemctl attach` runs, and the hook. Both need libxml2.
if HAVE_LIBXML2
pkglibexec_PROGRAMS = tmemctl-libvirt libvirt-hook
noinst_LIBRARIES += libdomain.a
libdomain_a_SOURCES = \
	tools/libvirt/device.c \
	tools/libvirt/domain.c \
	tools/libvirt/domain.h \
	tools/libvirt/memory.c \
	tools/libvirt/record.c
libdomain_a_CPPFLAGS = $(AM_CPPFLAGS) $(LIBXML2_CFLAGS)

tmemctl_libvirt_SOURCES = $(TMEMCTL_SOURCES) \
	tools/libvirt/attach.c \
	tools/libvirt/detach.c \
	tools/libvirt/job.c tools/libvirt/job.h \
	tools/libvirt/machine.h \
	tools/libvirt/request.c tools/libvirt/request.h
if HAVE_LIBVIRT
tmemctl_libvirt_SOURCES += tools/libvirt/machine.c
else
tmemctl_libvirt_SOURCES += tools/libvirt/machine_none.c
endif
tmemctl_libvirt_CPPFLAGS = -I$(top_srcdir) -I$(top_builddir) $(JANSSON_CFLAGS) $(LIBXML2_CFLAGS) \
	$(LIBVIRT_CFLAGS)
tmemctl_libvirt_LDADD = libdomain.a $(LIBVIRT_LIBS) $(LIBXML2_LIBS) $(JANSSON_LIBS)

libvirt_hook_SOURCES = \
	tools/libvirt/hook.c tools/libvirt/hook.h \
	tools/libvirt/hook_disk.c \
	tools/libvirt/request.c tools/libvirt/request.h \
	tools/tmemctl/call.c \
	tools/tmemctl/print.c tools/tmemctl/tmemctl.h
libvirt_hook_CPPFLAGS = -I$(top_srcdir) -I$(top_builddir) $(JANSSON_CFLAGS) $(LIBXML2_CFLAGS)
libvirt_hook_LDADD = libdomain.a $(LIBXML2_LIBS) $(JANSSON_LIBS)

# libvirt runs what it finds there. It must be a file and no link: AppArmor's profile of libvirtd
# lets it run files of that directory alone.
if LIBVIRT_HOOKS
install-exec-hook: install-libvirt-hook
install-libvirt-hook: libvirt-hook$(EXEEXT)
	$(MKDIR_P) "$(DESTDIR)$(libvirthooksdir)/qemu.d"
	$(INSTALL_PROGRAM) libvirt-hook$(EXEEXT) "$(DESTDIR)$(libvirthooksdir)/qemu.d/tmem"
uninstall-hook:
	rm -f "$(DESTDIR)$(libvirthooksdir)/qemu.d/tmem"
endif
endif
