# tmem-bench: built by make check, run by hand.
check_PROGRAMS += tests/bench/tmem-bench
tests_bench_tmem_bench_SOURCES = \
	tests/bench/allocator.c tests/bench/arena.c tests/bench/bench.h tests/bench/blk.c \
	tests/bench/compaction.c tests/bench/corpus.c tests/bench/figures.c tests/bench/floors.c \
	tests/bench/host.c tests/bench/machine.c tests/bench/main.c \
	tests/bench/nbd.c tests/bench/ring.c tests/bench/store.c tests/bench/zram.c
tests_bench_tmem_bench_CPPFLAGS = $(AM_CPPFLAGS) $(LZ4_CFLAGS) $(XXHASH_CFLAGS) $(JANSSON_CFLAGS) \
	$(LIBNBD_CFLAGS)
tests_bench_tmem_bench_LDADD = libtmemclient.a libvhostuser.a libfront.a libvhost.a libtest.a $(STORE_TEST_LIBS) $(JANSSON_LIBS) \
	$(SYSTEMD_LIBS) $(XEN_LIBS) $(LIBNBD_LIBS)

# Written anew only when it says something else.
tests/bench/commit.h: tests-bench-always
	@$(MKDIR_P) tests/bench
	@c=$$(git -C $(srcdir) describe --always --dirty --abbrev=12 2>/dev/null) || c=unknown; \
	echo "#define TMEMD_COMMIT \"$$c\"" >$@.new; \
	if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi
tests-bench-always:
.PHONY: tests-bench-always
tests/bench/tmem_bench-figures.$(OBJEXT): tests/bench/commit.h
CLEANFILES += tests/bench/commit.h
EXTRA_DIST += docs/performance.md
