"""How a language model is run: `runner.py` says what every engine does, and which prompts stay in memory.

`reference.py` runs any model through transformers. The fast engine on CPUs is `numpy_runner.py`: its decoder is
`numpy_decoder.py`, with its products in `linears.py` and `int8.py` and its past in `keys_values.py`.
The one on GPUs is `torch_runner.py`: its decoder is `torch_decoder.py`, its past is in `stage.py`, its graphs are
in `frames.py`, and `gpu_choice.py` says whether it computes what transformers computes.
`opening.py` reads weights through torch, `choice.py` chooses by `self_test.py`; `recorded.py` opens a small model
without torch.
"""

import os

os.environ.setdefault("USE_HUB_KERNELS", "NO")  # transformers reads it once: it is to fetch no code
