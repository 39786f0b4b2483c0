#!/bin/sh
# A compiler launcher: sh unserialised.sh [--ptxas PTXAS] [ccache] nvcc ARGUMENTS. Runs them, and fails where ptxas says that
# it serialises wgmma (C75xx): right, but several times slower, and to the compiler a mere remark. Likewise where registers
# spill, but for the five of the deterministic backward, which it spills where a block is seen in part, and those that
# kernels with score options spill outside of their loop over whole blocks, and those of the warp that walks over blocks,
# ahead of all others, where an item may have several blocks of keys.
# Either nvcc calls ptxas (-Xptxas=-v), or makes an object of readable PTX (--no-compress) that nothing but the interpreter
# runs; of that PTXAS compiles all kernels but those of float16, the twins of those of bfloat16.
ptxas=
[ "$1" != --ptxas ] || { ptxas=$2 && shift 2; }
remarks=$("$@" 2>&1)
status=$?
if [ -n "$ptxas" ] && [ $status -eq 0 ]; then
  object=$(printf '%s\n' "$@" | sed -n '/^-o$/{n;p;}')
  LC_ALL=C tr '\0' '\001' <"$object" |
    LC_ALL=C sed -n 's/.*\(\.version [0-9.]*\)$/\1/; /^\.version/,/\x01/{s/\x01.*//;p;}' >"$object.ptx"
  [ -s "$object.ptx" ] || { echo "unserialised.sh: no PTX in $object; expected --no-compress" >&2 && exit 1; }
  kernels=$(sed -n 's/.*\.entry \([A-Za-z0-9_$]*\).*/\1/p' "$object.ptx" | grep -v 6__half | paste -s -d , -)
  remarks=$remarks$("$ptxas" -v -arch=sm_90a ${kernels:+"--entry=$kernels"} -o /dev/null "$object.ptx" 2>&1)
  status=$?
fi
printf '%s\n' "$remarks" | grep -v -e '^ptxas info' -e 'bytes stack frame' -e '^$' >&2
[ $status -eq 0 ] || exit $status
serialised=$(printf '%s\n' "$remarks" | grep '(C75')
spilt=$(printf '%s\n' "$remarks" | sed -n 's/.* \([0-9]*\) bytes spill stores.*/\1/p' | sort -n | tail -1)
case "$*" in *_options.cu*) most=180 ;; *) most=400 ;; esac
if [ -n "$serialised" ] || [ "${spilt:-0}" -gt $most ]; then
  printf '%s\n' "$serialised" >&2
  echo "unserialised.sh: ptxas spills ${spilt:-0} bytes or serialises products (above); expected neither" >&2
  exit 1
fi
