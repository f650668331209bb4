"""From a document and a cursor to completions: context, prompt, drafts, offer."""
