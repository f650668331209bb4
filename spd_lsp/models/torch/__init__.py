"""The torch engine: passes of fixed shapes on any device, captured as graphs on CUDA."""
