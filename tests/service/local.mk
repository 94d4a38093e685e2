# What tests/service builds and runs.
