# Examples around xl and virsh, see docs/stream.md.
streamdir = $(pkgdatadir)/stream
dist_stream_SCRIPTS = tools/stream/tmem-virsh tools/stream/tmem-xl
