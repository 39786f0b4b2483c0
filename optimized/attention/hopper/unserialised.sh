#!/bin/sh
# A compiler launcher: sh unserialised.sh [ccache] nvcc ARGUMENTS -Xptxas=-v. Runs them, and fails where ptxas says that it
# serialises wgmma (C75xx): right, but several times slower, and to the compiler a mere remark. Likewise where registers
# spill, but for the five of the deterministic backward, which it spills where a block is seen in part, and those that
# kernels with score options spill outside of their loop over whole blocks.
remarks=$("$@" 2>&1)
status=$?
printf '%s\n' "$remarks" | grep -v -e '^ptxas info' -e 'bytes stack frame' -e '^$' >&2
[ $status -eq 0 ] || exit $status
serialised=$(printf '%s\n' "$remarks" | grep '(C75')
spilt=$(printf '%s\n' "$remarks" | sed -n 's/.* \([0-9]*\) bytes spill stores.*/\1/p' | sort -n | tail -1)
case "$*" in *_options.cu*) most=160 ;; *) most=20 ;; esac
if [ -n "$serialised" ] || [ "${spilt:-0}" -gt $most ]; then
  printf '%s\n' "$serialised" >&2
  echo "unserialised.sh: ptxas spills ${spilt:-0} bytes or serialises products (above); expected neither" >&2
  exit 1
fi
