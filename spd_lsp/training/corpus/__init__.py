"""What the starter learns from: a list of packages goes in, folders of source files and a manifest come out."""
