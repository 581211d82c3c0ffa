"""`make soak HOURS=`: what comes and goes under load must leave nothing behind in the nodes."""
