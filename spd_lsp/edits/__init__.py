"""Next edits: where a change that a person made twice is wanted, too. Knows neither models nor editors."""
