"""The torch engine: the same shapes on any device, with captured steps on CUDA."""
