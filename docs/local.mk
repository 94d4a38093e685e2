# Man pages and specifications.
include docs/man/local.mk
EXTRA_DIST += docs/membership.md
