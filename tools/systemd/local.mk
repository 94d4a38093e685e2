# How the service manager runs tmemd, an example of its configuration, and bash completion.
sysusersdir = $(prefix)/lib/sysusers.d
tmpfilesdir = $(prefix)/lib/tmpfiles.d
completionsdir = $(datadir)/bash-completion/completions
dist_sysusers_DATA = tools/systemd/sysusers.d/tmemd.conf
dist_tmpfiles_DATA = tools/systemd/tmpfiles.d/tmemd.conf
dist_completions_DATA = tools/completions/tmemctl
dist_systemdsystemunit_DATA = tools/systemd/run-tmemd.mount
nodist_systemdsystemunit_DATA = tmemd.service
dist_pkgdata_DATA = tools/systemd/peers.conf
EXTRA_DIST += tools/systemd/tmemd.service.in tools/systemd/tmemd.conf
CLEANFILES += tmemd.service

tmemd.service: tools/systemd/tmemd.service.in Makefile
	$(AM_V_GEN)sed -e 's|@sbindir[@]|$(sbindir)|' -e 's|@sysconfdir[@]|$(sysconfdir)|' \
		$(srcdir)/tools/systemd/tmemd.service.in > $@

# By its path: nbdkit finds a plugin by name in its own directory only.
if HAVE_NBDKIT
dist_systemdsystemunit_DATA += tools/systemd/tmem-nbd@.socket
nodist_systemdsystemunit_DATA += tmem-nbd@.service
endif
EXTRA_DIST += tools/systemd/tmem-nbd@.service.in tools/systemd/tmem-nbd@.socket
CLEANFILES += tmem-nbd@.service

tmem-nbd@.service: tools/systemd/tmem-nbd@.service.in Makefile
	$(AM_V_GEN)sed -e 's|@nbdkit_plugin[@]|$(nbdkitplugindir)/nbdkit-tmem-plugin.so|' \
		'$(srcdir)/tools/systemd/tmem-nbd@.service.in' > '$@'

# The configuration is the operator's: one that is there is left alone, one that was changed stays.
install-data-local:
	$(MKDIR_P) $(DESTDIR)$(sysconfdir)/tmemd/conf.d
	test -e $(DESTDIR)$(sysconfdir)/tmemd/tmemd.conf || \
		$(INSTALL_DATA) $(srcdir)/tools/systemd/tmemd.conf $(DESTDIR)$(sysconfdir)/tmemd/

uninstall-local:
	cmp -s $(srcdir)/tools/systemd/tmemd.conf $(DESTDIR)$(sysconfdir)/tmemd/tmemd.conf && \
		rm -f $(DESTDIR)$(sysconfdir)/tmemd/tmemd.conf || true
	-rmdir $(DESTDIR)$(sysconfdir)/tmemd/conf.d $(DESTDIR)$(sysconfdir)/tmemd 2>/dev/null
