# What hyp/control builds.
