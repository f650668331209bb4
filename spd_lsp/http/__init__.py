"""Completions over HTTP for programs of this user: the APIs of llama.cpp's server and of OpenAI."""
