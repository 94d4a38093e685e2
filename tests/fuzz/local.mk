# Fuzz targets. With --enable-fuzzers libFuzzer drives them (make check-fuzz); else they are tests
# that give each target the corpus that is kept.
FUZZ_WORLD = tests/fuzz/audit.c tests/fuzz/audit.h tests/fuzz/loads.h \
	tests/fuzz/world.c tests/fuzz/world.h $(FUZZ_LOADS)
FUZZ_TARGETS = tests/fuzz/arena tests/fuzz/config tests/fuzz/control tests/fuzz/handshake \
	tests/fuzz/restore tests/fuzz/ring tests/fuzz/vhost
check_PROGRAMS += $(FUZZ_TARGETS)
if FUZZERS
FUZZ_MAIN =
LIBFUZZER = -fsanitize=fuzzer
FUZZ_LOADS =
libbase_a_SOURCES += tests/fuzz/loads.c
else
FUZZ_MAIN = tests/fuzz/replay.c
FUZZ_LOADS = tests/fuzz/loads.c
LIBFUZZER =
TESTS += $(FUZZ_TARGETS)
endif

FUZZ_TARGETS += tests/fuzz/members
FUZZ_WORLD_LIBS = libfront.a libvhost.a $(STORE_TEST_LIBS) $(SYSTEMD_LIBS) $(XEN_LIBS)

tests_fuzz_arena_SOURCES = tests/fuzz/arena.c tests/fuzz/audit.c tests/fuzz/audit.h \
	tests/fuzz/fuzz.h $(FUZZ_MAIN)
tests_fuzz_arena_LDFLAGS = $(LIBFUZZER)
tests_fuzz_arena_CPPFLAGS = $(AM_CPPFLAGS) $(XXHASH_CFLAGS)
tests_fuzz_arena_LDADD = $(STORE_TEST_LIBS)

tests_fuzz_config_SOURCES = tests/fuzz/config.c tests/fuzz/fuzz.h $(FUZZ_MAIN)
tests_fuzz_config_LDFLAGS = $(LIBFUZZER)
tests_fuzz_config_LDADD = libcontrol.a $(STORE_TEST_LIBS) $(INIH_LIBS)

tests_fuzz_control_SOURCES = tests/fuzz/control.c tests/fuzz/audit.c tests/fuzz/audit.h \
	tests/fuzz/fuzz.h $(FUZZ_MAIN)
tests_fuzz_control_LDFLAGS = $(LIBFUZZER)
tests_fuzz_control_CPPFLAGS = $(AM_CPPFLAGS) $(EVENT_CFLAGS) $(JANSSON_CFLAGS)
tests_fuzz_control_LDADD = libcontrol.a $(STORE_TEST_LIBS) $(EVENT_LIBS) $(JANSSON_LIBS) \
	$(INIH_LIBS) $(SYSTEMD_LIBS) $(SECCOMP_LIBS)

tests_fuzz_members_SOURCES = tests/fuzz/members.c tests/fuzz/fuzz.h $(FUZZ_MAIN)
tests_fuzz_members_LDFLAGS = $(LIBFUZZER)
tests_fuzz_members_CPPFLAGS = $(AM_CPPFLAGS) $(GNUTLS_CFLAGS) $(JANSSON_CFLAGS)
tests_fuzz_members_LDADD = $(MEMBERS_LIBS)

tests_fuzz_handshake_SOURCES = tests/fuzz/handshake.c tests/fuzz/fuzz.h $(FUZZ_WORLD) $(FUZZ_MAIN)
tests_fuzz_handshake_LDFLAGS = $(LIBFUZZER)
tests_fuzz_handshake_LDADD = $(FUZZ_WORLD_LIBS)

tests_fuzz_restore_SOURCES = tests/fuzz/restore.c tests/fuzz/audit.c tests/fuzz/audit.h \
	tests/fuzz/fuzz.h $(FUZZ_MAIN)
tests_fuzz_restore_LDFLAGS = $(LIBFUZZER)
tests_fuzz_restore_CPPFLAGS = $(AM_CPPFLAGS) $(XXHASH_CFLAGS)
tests_fuzz_restore_LDADD = libstream.a $(STORE_TEST_LIBS)

tests_fuzz_ring_SOURCES = tests/fuzz/ring.c tests/fuzz/fuzz.h $(FUZZ_WORLD) $(FUZZ_MAIN)
tests_fuzz_ring_LDFLAGS = $(LIBFUZZER)
tests_fuzz_ring_LDADD = $(FUZZ_WORLD_LIBS)

tests_fuzz_vhost_SOURCES = tests/fuzz/vhost.c tests/fuzz/fuzz.h tests/fuzz/loads.h $(FUZZ_LOADS) \
	$(FUZZ_MAIN)
tests_fuzz_vhost_LDFLAGS = $(LIBFUZZER)
tests_fuzz_vhost_LDADD = libvhost.a libbase.a

EXTRA_DIST += tests/fuzz/README.md tests/fuzz/config.dict tests/fuzz/control.dict \
	tests/fuzz/corpus tests/fuzz/loads.c tests/fuzz/replay.c tests/fuzz/run

# Each target for FUZZ_SECONDS, from a copy of the kept corpus.
FUZZ_SECONDS = 40
fuzz-targets: $(FUZZ_TARGETS)
check-fuzz: $(FUZZ_TARGETS)
	FUZZ_SECONDS='$(FUZZ_SECONDS)' $(srcdir)/tests/fuzz/run $(FUZZ_TARGETS)
.PHONY: check-fuzz fuzz-targets
