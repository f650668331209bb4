"""The starter's training corpus. In: a list of packages. Out: folders of source files and a manifest."""
