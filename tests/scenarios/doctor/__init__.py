"""Programs that fail as people report it, and what `barnabas doctor` says of each."""
