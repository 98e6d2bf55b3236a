#!/bin/sh
# Makes an image with nothing but a static ordergate, as an OCI archive.
# usage: tools/image.sh ARCH BINARY ARCHIVE
set -eu
arch=$1 binary=$2 archive=$3
store=$(mktemp -d)
build() { buildah --root "$store/root" --runroot "$store/run" --storage-driver "${STORAGE_DRIVER:-overlay}" "$@"; }
trap 'build rm --all >/dev/null 2>&1 || true; rm -rf "$store"' EXIT
work=$(build from --arch "$arch" scratch)
build copy --quiet --chown 0:0 --chmod 755 "$work" "$binary" /ordergate >/dev/null
# A volume that is mounted there gets its owner, who makes sockets in it.
mkdir "$store/sockets"
build copy --quiet --chown 65532:65532 --chmod 755 "$work" "$store/sockets" /run/ordergate >/dev/null
build config --user 65532:65532 --entrypoint '["/ordergate"]' --cmd 'serve --config /etc/ordergate/ordergate.yaml' \
    --os linux --arch "$arch" --created-by "" --history-comment "" "$work"
image=$(build commit --quiet --timestamp 0 "$work")
build push --quiet "$image" "oci:$store/image:ordergate"
# An archive of buildah's own has the time of its making.
tar -C "$store/image" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -cf "$archive" .
