"""HumanEval-Infilling, on which others publish numbers: are the filled programs right?"""
