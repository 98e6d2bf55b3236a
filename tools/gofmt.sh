#!/bin/sh
# Fails, and names them, when Go files are not formatted.
set -eu
unformatted=$(git ls-files -co --exclude-standard '*.go' | while read -r f; do [ ! -e "$f" ] || echo "$f"; done | xargs gofmt -l)
[ -z "$unformatted" ] || { echo "gofmt these files:" $unformatted >&2; exit 1; }
