#!/bin/sh
# Prints the packages of the main module with a Go file that differs from the upstream
# branch, or from the last commit where there is none, one a line.
set -eu
base=$(git merge-base HEAD '@{upstream}' 2>/dev/null) || base=HEAD
{ git diff --name-only --diff-filter=d "$base" -- '*.go'; git ls-files -o --exclude-standard -- '*.go'; } |
	xargs -r -n 1 dirname | sort -u | grep -v /testdata | while read -r directory; do
		# The nearest go.mod above says whose it is.
		module=$directory
		while [ "$module" != . ] && [ ! -e "$module/go.mod" ]; do module=$(dirname "$module"); done
		[ "$module" != . ] || echo "./$directory"
	done
