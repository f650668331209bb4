"""`python -m spd_lsp.evaluation.paper EXPERIMENT REPO... --out FOLDER`."""

from spd_lsp.evaluation.paper.commands import experiments

experiments()
