"""How editors reach a server, and who may: standard streams, or a Unix socket of the user's own."""
