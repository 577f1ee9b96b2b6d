"""The machines: mesh, hosts, links, and how long things take on them."""
