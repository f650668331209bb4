"""How fast drafts are written: superposed decoding beside what does the same without it, in one run."""
