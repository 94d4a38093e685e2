# What hyp/front builds.
