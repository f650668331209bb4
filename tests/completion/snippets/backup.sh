#!/usr/bin/env bash
set -euo pipefail

target="${1:-$HOME/backup}"
count=0

copy() {
  local file=$1
  if [ -f "$file" ]; then
    cp "$file" "$target/$(basename "$file")"
    count=$((count + 1))
  else
    echo "no file: $file" >&2
  fi
}

for file in "$HOME"/*.txt; do
  copy "$file"
done
case "$count" in
  0) echo 'nothing to do' ;;
  *) echo "copied $count files" ;;
esac
