# What tests/vm builds and runs.
