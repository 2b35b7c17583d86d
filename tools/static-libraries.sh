#!/bin/sh
# static-libraries.sh FOLDER [aarch64]: libzip, fmt and mimalloc as static archives below FOLDER, from Debian's own sources (apt
# checks their signatures). Debian has no archives of these three; libzip is built with zlib alone, which is all that .pt2 files use.
# For aarch64 the folder also gets the other libraries, from Debian's packages for that processor.
set -eu
machine=${2:-}
tree=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$1"
prefix=$(cd "$1" && pwd)
[ ! -e "$prefix/.ready" ] || exit 0
here=$prefix/sources
rm -rf "$here"
mkdir -p "$here/lists/partial"
release=$(. /etc/os-release && echo "$VERSION_CODENAME")
echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $release main" >"$here/sources.list"
cd "$here"
# Lists of its own: the machine's need not have sources, and stay as they are.
set -- -q -o "Dir::Etc::sourcelist=$here/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$here/lists" -o APT::Sandbox::User=root
apt-get "$@" update >log 2>&1 && apt-get "$@" source --download-only libzip fmtlib mimalloc >>log 2>&1 || { cat log >&2; exit 1; }
cross=""
if [ "$machine" = aarch64 ]; then
  mkdir -p arm64/lists/partial arm64/cache
  echo "deb [arch=arm64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $release main" >arm64/sources.list
  set -- -q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o "Dir::Etc::sourcelist=$here/arm64/sources.list" -o Dir::Etc::sourceparts=- \
    -o "Dir::State::lists=$here/arm64/lists" -o "Dir::Cache=$here/arm64/cache" -o APT::Sandbox::User=root
  apt-get "$@" update >>log 2>&1 && apt-get "$@" download libprotobuf-dev zlib1g-dev libzstd-dev nlohmann-json3-dev libcli11-dev libtomlplusplus-dev >>log 2>&1 ||
    { cat log >&2; exit 1; }
  for package in ./*.deb; do dpkg-deb -x "$package" "$prefix"; done
  cross="-DCMAKE_TOOLCHAIN_FILE=$tree/cmake/aarch64.cmake -DMEMPLAN_STATIC=$prefix"
fi
unpack() { mkdir "$1" && tar -xf "$1"_*.orig.tar.* -C "$1" --strip-components 1; }
build() {
  name=$1
  shift
  unpack "$name"
  # shellcheck disable=SC2086  # two words or none
  cmake -S "$name" -B "$name/build" -G Ninja $cross -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DCMAKE_INSTALL_PREFIX="$prefix" \
    -DCMAKE_INSTALL_LIBDIR=lib "$@" >>log 2>&1 && cmake --build "$name/build" --target install >>log 2>&1 || { tail -30 log >&2; exit 1; }
}
build libzip -DENABLE_COMMONCRYPTO=OFF -DENABLE_GNUTLS=OFF -DENABLE_MBEDTLS=OFF -DENABLE_OPENSSL=OFF -DENABLE_BZIP2=OFF -DENABLE_LZMA=OFF \
  -DENABLE_ZSTD=OFF -DBUILD_TOOLS=OFF -DBUILD_REGRESS=OFF -DBUILD_EXAMPLES=OFF -DBUILD_DOC=OFF
build fmtlib -DFMT_TEST=OFF -DFMT_DOC=OFF
build mimalloc -DMI_BUILD_SHARED=OFF -DMI_BUILD_OBJECT=OFF -DMI_BUILD_TESTS=OFF -DMI_INSTALL_TOPLEVEL=ON -DMI_OVERRIDE=OFF
# Their licences go with the program.
mkdir -p "$prefix/licenses"
cp libzip/LICENSE "$prefix/licenses/libzip"
cp fmtlib/LICENSE* "$prefix/licenses/fmt"
cp mimalloc/LICENSE "$prefix/licenses/mimalloc"
cd "$prefix"
rm -rf "$here"
touch .ready
