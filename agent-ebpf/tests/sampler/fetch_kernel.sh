#!/bin/sh
# Prints the path of a Debian kernel image of a series: fetch_kernel.sh 6.1|6.12 FOLDER
# FOLDER keeps it. The newest package of the series is taken when there is none yet.
set -eu
series=$1
folder=$2/$series
[ -f "$folder/vmlinuz" ] || {
    suite=bookworm
    [ "$series" = 6.1 ] || suite=bookworm-backports
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    mkdir -p "$work/lists/partial" "$work/archives/partial" "$work/package" "$folder"
    echo "deb http://deb.debian.org/debian $suite main" >"$work/sources.list"
    cd "$work"
    apt() {
        tool=$1
        shift
        "apt-$tool" -q -o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts=/dev/null \
            -o Dir::State::Lists="$work/lists" -o Dir::Cache="$work" -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false -o APT::Sandbox::User=root "$@"
    }
    find_image() {
        "$@" search "^linux-image-$series\.[0-9].*-cloud-amd64\$" | cut -d' ' -f1 | grep -v unsigned | sort -V | tail -n 1
    }
    # The lists of this machine, if they have it, else those of the suite.
    name=$(find_image apt-cache -q || true)
    if [ -z "$name" ] || ! apt-get -q -o APT::Sandbox::User=root download "$name" >&2; then
        apt get update >&2
        name=$(find_image apt cache)
        [ -n "$name" ]
        apt get download "$name" >&2
    fi
    dpkg -x ./*.deb package
    mv package/boot/vmlinuz-* "$folder/vmlinuz"
}
echo "$folder/vmlinuz"
