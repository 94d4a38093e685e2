# The nbdkit plugin. Built as a program: automake makes shared objects otherwise only with libtool.
if HAVE_NBDKIT
nbdkitplugin_PROGRAMS = nbdkit-tmem-plugin.so
nbdkit_tmem_plugin_so_SOURCES = tools/nbdkit/tmem.c $(VHOST_FRONT_END)
nbdkit_tmem_plugin_so_CPPFLAGS = $(AM_CPPFLAGS) $(NBDKIT_CFLAGS)
nbdkit_tmem_plugin_so_CFLAGS = $(AM_CFLAGS) -fPIC -fvisibility=hidden
nbdkit_tmem_plugin_so_LDFLAGS = -shared
endif
