# The guest player: programs that play guests against the real tmemd.
PLAYER = tests/service/player.c tests/service/player.h \
	tests/service/manager.c tests/service/manager.h \
	tests/service/raw.c tests/service/raw.h
PLAYER_LIBS = libtmemclient.a libtest.a
service_tests = tests/service/handshake tests/service/rings tests/service/restart \
	tests/service/fairness tests/service/fdstore tests/service/bells \
	tests/service/death tests/service/scribble tests/service/floods \
	tests/service/cut tests/service/files tests/service/identity tests/service/idle \
	tests/service/noalloc tests/service/limit tests/service/enumerate tests/service/stream
check_PROGRAMS += $(service_tests) tests/service/ringload
TESTS += $(service_tests)

tests_service_handshake_SOURCES = tests/service/handshake.c $(PLAYER)
tests_service_handshake_LDADD = $(PLAYER_LIBS)
tests_service_rings_SOURCES = tests/service/rings.c $(PLAYER)
tests_service_rings_LDADD = $(PLAYER_LIBS)
tests_service_restart_SOURCES = tests/service/restart.c $(PLAYER)
tests_service_restart_LDADD = $(PLAYER_LIBS)
tests_service_fairness_SOURCES = tests/service/fairness.c $(PLAYER)
tests_service_fairness_LDADD = $(PLAYER_LIBS)
tests_service_fdstore_SOURCES = tests/service/fdstore.c $(PLAYER)
tests_service_fdstore_LDADD = $(PLAYER_LIBS)
tests_service_identity_SOURCES = tests/service/identity.c $(PLAYER)
tests_service_identity_LDADD = $(PLAYER_LIBS)
tests_service_idle_SOURCES = tests/service/idle.c $(PLAYER)
tests_service_idle_LDADD = $(PLAYER_LIBS)
tests_service_files_SOURCES = tests/service/files.c $(PLAYER)
tests_service_files_LDADD = $(PLAYER_LIBS)
tests_service_cut_SOURCES = tests/service/cut.c $(PLAYER)
tests_service_cut_LDADD = $(PLAYER_LIBS)
tests_service_bells_SOURCES = tests/service/bells.c $(PLAYER)
tests_service_bells_LDADD = $(PLAYER_LIBS)
tests_service_floods_SOURCES = tests/service/floods.c $(PLAYER)
tests_service_floods_LDADD = $(PLAYER_LIBS)
tests_service_scribble_SOURCES = tests/service/scribble.c $(PLAYER)
tests_service_scribble_LDADD = $(PLAYER_LIBS)
tests_service_death_SOURCES = tests/service/death.c $(PLAYER)
tests_service_death_LDADD = $(PLAYER_LIBS)
tests_service_limit_SOURCES = tests/service/limit.c $(PLAYER)
tests_service_limit_LDADD = $(PLAYER_LIBS)
tests_service_stream_SOURCES = tests/service/stream.c $(PLAYER)
tests_service_stream_LDADD = $(PLAYER_LIBS) libbase.a
# Not a test: the load of tests that make the host short of memory.
tests_service_ringload_SOURCES = tests/service/ringload.c $(PLAYER)
tests_service_ringload_LDADD = $(PLAYER_LIBS)

# The hook is built by hand: automake makes shared objects only with libtool.
tests_service_noalloc_SOURCES = tests/service/noalloc.c tests/lib/noalloc.h $(PLAYER)
tests_service_noalloc_LDADD = $(PLAYER_LIBS)
NOALLOC_HOOK = tests/service/noalloc_hook.c tests/lib/noalloc.c
check_DATA += tests/service/noalloc.so
CLEANFILES += tests/service/noalloc.so
EXTRA_DIST += $(NOALLOC_HOOK)
tests/service/noalloc.so: $(NOALLOC_HOOK) tests/lib/noalloc.h
	$(AM_V_CCLD)$(MKDIR_P) tests/service && $(CC) $(AM_CPPFLAGS) $(CPPFLAGS) -I. $(AM_CFLAGS) \
		$(CFLAGS) -shared -fPIC -o $@ $(srcdir)/tests/service/noalloc_hook.c \
		$(srcdir)/tests/lib/noalloc.c

tests_service_doctor_SOURCES = tests/service/doctor.c $(PLAYER)
tests_service_doctor_LDADD = $(PLAYER_LIBS)
check_PROGRAMS += tests/service/doctor
TESTS += tests/service/doctor
tests_service_enumerate_SOURCES = tests/service/enumerate.c $(PLAYER)
tests_service_enumerate_LDADD = $(PLAYER_LIBS) libbase.a

# Disks: a front end of vhost-user plays QEMU and the guest.
DISK_LOAD = tests/service/diskload.c tests/service/diskload.h $(PLAYER)
DISK_LIBS = libvhostuser.a $(PLAYER_LIBS)
HOSTILE = tests/lib/vhost_hostile.c tests/lib/vhost_hostile.h
disk_tests = tests/service/disk tests/service/disk_restart tests/service/disk_hostile \
	tests/service/disk_full tests/service/disk_backend tests/service/disk_fdstore
check_PROGRAMS += $(disk_tests)
TESTS += $(disk_tests)
tests_service_disk_SOURCES = tests/service/disk.c $(DISK_LOAD) $(HOSTILE)
tests_service_disk_LDADD = $(DISK_LIBS)
tests_service_disk_restart_SOURCES = tests/service/disk_restart.c $(DISK_LOAD)
tests_service_disk_restart_LDADD = $(DISK_LIBS)
tests_service_disk_hostile_SOURCES = tests/service/disk_hostile.c $(DISK_LOAD) $(HOSTILE)
tests_service_disk_hostile_LDADD = $(DISK_LIBS)
tests_service_disk_fdstore_SOURCES = tests/service/disk_fdstore.c $(DISK_LOAD) $(HOSTILE)
tests_service_disk_fdstore_LDADD = $(DISK_LIBS)
tests_service_disk_full_SOURCES = tests/service/disk_full.c $(DISK_LOAD)
tests_service_disk_full_LDADD = $(DISK_LIBS)
tests_service_disk_backend_SOURCES = tests/service/disk_backend.c $(DISK_LOAD) $(HOSTILE)
tests_service_disk_backend_LDADD = $(DISK_LIBS)

# The same by many threads: of one program, and of NBD clients.
BLOCK_LOAD = tests/service/blockload.c tests/service/blockload.h $(DISK_LOAD)
check_PROGRAMS += tests/service/disk_threads tests/service/nbd
TESTS += tests/service/disk_threads tests/service/nbd
tests_service_disk_threads_SOURCES = tests/service/disk_threads.c $(BLOCK_LOAD)
tests_service_disk_threads_LDADD = $(DISK_LIBS)
tests_service_nbd_SOURCES = tests/service/nbd.c $(BLOCK_LOAD)
tests_service_nbd_CPPFLAGS = $(AM_CPPFLAGS) $(LIBNBD_CFLAGS)
tests_service_nbd_LDADD = $(DISK_LIBS) $(LIBNBD_LIBS)
