# Man pages and specifications.
