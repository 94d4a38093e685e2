# Programs that speak to tmemd.
include tools/tmemctl/local.mk
include tools/libvirt/local.mk
include tools/systemd/local.mk
include tools/client/local.mk
include tools/vhost/local.mk
include tools/nbdkit/local.mk
include tools/guest/local.mk
include tools/backend/local.mk
include tools/stream/local.mk
include tools/xen/local.mk
