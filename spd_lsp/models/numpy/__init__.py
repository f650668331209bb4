"""The NumPy engine: Llama and StarCoder2 shapes on a CPU, without torch."""
