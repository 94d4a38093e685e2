# Membership: which hosts there are. Not part of tmemd yet. Its one public header is members.h.
noinst_LIBRARIES += libmembers.a
libmembers_a_CPPFLAGS = $(AM_CPPFLAGS) $(GNUTLS_CFLAGS) $(JANSSON_CFLAGS) $(CURL_CFLAGS)
libmembers_a_SOURCES = \
	hyp/tier/members.h hyp/tier/members_priv.h \
	hyp/tier/members.c \
	hyp/tier/members_static.c \
	hyp/tier/members_json.c
MEMBERS_LIBS = libmembers.a libbase.a $(GNUTLS_LIBS) $(JANSSON_LIBS) $(CURL_LIBS)
if HAVE_LIBCURL
libmembers_a_SOURCES += hyp/tier/members_etcd.c hyp/tier/members_http.c
endif
