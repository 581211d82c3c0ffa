"""The web console: its pure figures, its pages over a real cluster, and a real browser."""
