# Man pages and specifications.
include docs/man/local.mk
