# The command line, end to end: tmemd and tmemctl as an operator runs them.
CLI_TESTS = \
	tests/cli/cases.bats \
	tests/cli/config.bats \
	tests/cli/control.bats \
	tests/cli/disk.bats \
	tests/cli/doctor.bats \
	tests/cli/libvirt.bats \
	tests/cli/mounts.bats \
	tests/cli/nbd.bats \
	tests/cli/service.bats \
	tests/cli/stream.bats \
	tests/cli/tmemctl.bats \
	tests/cli/usage.bats \
	tests/cli/xen.bats
TESTS += $(CLI_TESTS)
check_PROGRAMS += tests/cli/diskfill
tests_cli_diskfill_SOURCES = tests/cli/diskfill.c
tests_cli_diskfill_LDADD = libvhostuser.a
TEST_EXTENSIONS = .bats
BATS_LOG_COMPILER = $(SHELL) $(srcdir)/tests/cli/run.sh
EXTRA_DIST += \
	$(CLI_TESTS) \
	tests/cli/run.sh \
	tests/cli/lib.bash \
	tests/cli/rude.py \
	tests/cli/manager.py \
	tests/cli/metrics.py
