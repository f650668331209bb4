"""Next edits: where the change that a person just made is wanted, too. Knows neither models nor editors."""
