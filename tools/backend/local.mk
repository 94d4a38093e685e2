# A program for managers that start one for each vhost-user device, and how they find it.
bin_PROGRAMS += tmem-vhost-user-blk
tmem_vhost_user_blk_SOURCES = tools/backend/main.c tools/backend/relay.c tools/backend/relay.h
tmem_vhost_user_blk_LDADD =

backenddir = $(datadir)/qemu/vhost-user
nodist_backend_DATA = 50-tmem-vhost-user-blk.json
EXTRA_DIST += tools/backend/50-tmem-vhost-user-blk.json.in
CLEANFILES += 50-tmem-vhost-user-blk.json

50-tmem-vhost-user-blk.json: tools/backend/50-tmem-vhost-user-blk.json.in Makefile
	$(AM_V_GEN)sed 's|@bindir[@]|$(bindir)|' $(srcdir)/tools/backend/$@.in > $@
