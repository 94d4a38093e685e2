# What hyp/store builds.
