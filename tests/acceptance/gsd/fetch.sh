#!/bin/sh
# fetch.sh FOLDER: the real GSD packages and the versions of Node that they need, by npm, unless they are there already.
set -eu
mkdir -p "$1"
cd "$1"
fetch_package() { # NAME VERSION FOLDER
  [ -d "$3" ] && return
  npm pack --silent "$1@$2" > packed
  mkdir "$3.part"
  tar xzf "$(tail -1 packed)" -C "$3.part" --strip-components=1
  mv "$3.part" "$3"
}
fetch_node() { # VERSION
  [ -x "node-$1/node_modules/node/bin/node" ] && return
  npm install --silent --no-audit --no-fund --prefix "node-$1" "node@$1"
}
rm -rf ./*.part
fetch_package get-shit-done-cc 1.32.0 classic-1.32.0
fetch_package get-shit-done-cc 1.42.3 classic-1.42.3
fetch_package @opengsd/gsd-core 1.14.0 core-1.14.0
fetch_node 22
fetch_node 24
