# Programs that speak to tmemd.
include tools/tmemctl/local.mk
