"""The room that simulates whole nodes, as its users see it; what proves its laws is in tests/simulation."""
