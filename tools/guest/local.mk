# For guests that swap to a disk: to be copied there, see docs/operators-guide.md.
guestdatadir = $(pkgdatadir)/guest
dist_guestdata_DATA = \
	tools/guest/60-tmem-swap.rules \
	tools/guest/tmem-mkswap@.service \
	tools/guest/tmem.swap
