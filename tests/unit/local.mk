# What tests/unit builds and runs.
