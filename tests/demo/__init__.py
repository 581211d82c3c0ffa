"""The demo's own rules: the order of its rows, and the judge that says whether it was right."""
