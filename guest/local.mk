# The guest module is built by kbuild, see guest/README.md.
