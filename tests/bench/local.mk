# What tests/bench builds and runs.
