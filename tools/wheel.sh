#!/bin/sh
# wheel.sh PYTHON BUILD OUT [MACHINE]: packs the static memplan and the emulated GPU of BUILD into a wheel in OUT, for pip on any Linux of
# this processor. musl's too: the program needs no library at all, and the emulated GPU is only opened where PyTorch for CUDA is, on glibc.
# With MACHINE (aarch64), BUILD was cross-built, and there is no emulated GPU: it is made against the PyTorch of the machine that builds.
set -eu
python=$1 build=$2 out=$3 machine=${4:-$(uname -m)}
tools="" libraries=static-libraries
[ "$machine" = "$(uname -m)" ] || { tools=$machine-linux-gnu- libraries=static-libraries-$machine; }
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$build" && pwd)
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if readelf -d "$build/memplan" | grep -q NEEDED; then
  echo "$build/memplan needs shared libraries: configure with -DMEMPLAN_STATIC (cmake --preset static)" >&2
  exit 1
fi
# What the emulated GPU asks of glibc must be what the tag promises.
library=""
if [ -z "$tools" ]; then
  newest=$(objdump -T "$build/emulated_gpu/libemulated_gpu.so" | sed -n 's/.*(\{0,1\}GLIBC_\([0-9.]*\).*/\1/p' | sort -V | tail -1)
  [ "$(printf '%s\n2.17\n' "$newest" | sort -V | tail -1)" = 2.17 ] || { echo "libemulated_gpu.so needs glibc $newest; the tag says 2.17" >&2; exit 1; }
  library=$work/libemulated_gpu.so
  strip -o "$library" "$build/emulated_gpu/libemulated_gpu.so"
fi

"${tools}strip" -o "$work/memplan" "$build/memplan"
mkdir "$work/licenses"
cp "$root/build/$libraries/licenses/"* "$work/licenses/"
cp "$root/third_party/onnx/LICENSE" "$work/licenses/onnx"
for package in libprotobuf-dev:protobuf zlib1g-dev:zlib libzstd-dev:zstd nlohmann-json3-dev:nlohmann-json libcli11-dev:cli11 libtomlplusplus-dev:tomlplusplus libjs-dygraphs:dygraphs libc6-dev:glibc libstdc++-12-dev:libstdc++; do
  [ ! -e "/usr/share/doc/${package%:*}/copyright" ] || cp -L "/usr/share/doc/${package%:*}/copyright" "$work/licenses/${package#*:}"
done
"$python" -m pip wheel "$root" --no-deps --quiet --disable-pip-version-check --wheel-dir "$work/wheel" -C "build-dir=$work/build" \
  -C "cmake.define.MEMPLAN_PREBUILT=$work/memplan" -C "cmake.define.MEMPLAN_PREBUILT_EMULATED_GPU=$library" \
  -C "cmake.define.MEMPLAN_PREBUILT_LICENSES=$work/licenses"
"$python" -m pip install --quiet --disable-pip-version-check --target "$work/tool" wheel
PYTHONPATH=$work/tool "$python" -m wheel tags --remove --platform-tag "manylinux_2_17_$machine.musllinux_1_1_$machine" "$work"/wheel/*.whl >/dev/null
rm -f "$out"/memplan-*_"$machine".whl
mv "$work"/wheel/*.whl "$out/"
ls -l "$out"/memplan-*_"$machine".whl
