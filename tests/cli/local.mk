# The command line, end to end: tmemd and tmemctl as an operator runs them.
TESTS += tests/cli/run.sh
EXTRA_DIST += \
	tests/cli/run.sh \
	tests/cli/lib.bash \
	tests/cli/cases.bats \
	tests/cli/config.bats \
	tests/cli/control.bats \
	tests/cli/doctor.bats \
	tests/cli/rude.py \
	tests/cli/manager.py \
	tests/cli/metrics.py \
	tests/cli/mounts.bats \
	tests/cli/service.bats \
	tests/cli/tmemctl.bats \
	tests/cli/usage.bats
