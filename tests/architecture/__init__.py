"""Laws of the house that a machine can check."""
