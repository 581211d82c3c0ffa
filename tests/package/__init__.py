"""The wheel as its users get it: built, installed into empty environments, run."""
