"""The packages that a project depends on: where their code is installed, and a table for each version."""
