"""The same completions over HTTP, for this user's programs: the APIs of llama.cpp's server and of OpenAI."""
