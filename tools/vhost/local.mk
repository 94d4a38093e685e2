# A vhost-user front end, for the nbdkit plugin, tests and the bench. It needs libc only.
VHOST_FRONT_END = \
	tools/vhost/vhost_disk.c tools/vhost/vhost_disk.h \
	tools/vhost/vhost_ring.c \
	tools/vhost/vhost_user.c tools/vhost/vhost_user.h tools/vhost/vhost_user_priv.h
noinst_LIBRARIES += libvhostuser.a
libvhostuser_a_SOURCES = $(VHOST_FRONT_END)
