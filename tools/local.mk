# Programs that speak to tmemd.
