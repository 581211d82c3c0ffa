"""Tests: a mirror of the house, then beyond it (scenarios, simulation, cluster, compat, architecture)."""
