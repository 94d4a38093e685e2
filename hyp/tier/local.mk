# Tiers: where pages go when memory is short. Its one public header is peers.h.
noinst_LIBRARIES += libtier.a
libtier_a_CPPFLAGS = $(AM_CPPFLAGS) $(GNUTLS_CFLAGS)
libtier_a_SOURCES = \
	proto/peer.h \
	hyp/store/tier.h \
	hyp/tier/peers.h \
	hyp/tier/frame.c hyp/tier/frame.h \
	hyp/tier/credentials.c \
	hyp/tier/link.c hyp/tier/link.h \
	hyp/tier/lender.c hyp/tier/lender_conn.c hyp/tier/lender_priv.h \
	hyp/tier/place.c hyp/tier/place.h \
	hyp/tier/dial.c hyp/tier/op.c hyp/tier/peer.c hyp/tier/peers.c hyp/tier/peers_priv.h
TIER_LIBS = libtier.a libbase.a $(GNUTLS_LIBS)
