"""Pages with scripts of their own, which need no server and no network."""
