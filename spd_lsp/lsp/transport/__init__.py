"""How editors reach a server, and who may: standard streams, a socket of the user's own, a port with a token."""
