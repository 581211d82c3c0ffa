"""The history checker: judges real and simulated runs alike, from what clients were told and what the log holds."""
