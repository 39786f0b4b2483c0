#!/bin/sh
# A compiler launcher: sh unserialised.sh [ccache] nvcc ARGUMENTS. Runs them, and fails where ptxas says that it
# serialises wgmma (C75xx): right, but several times slower, and to the compiler a mere remark.
remarks=$("$@" 2>&1)
status=$?
[ -z "$remarks" ] || printf '%s\n' "$remarks" >&2
[ $status -eq 0 ] || exit $status
case $remarks in
*'(C75'*)
  echo "unserialised.sh: ptxas serialises products (above); expected none of its remarks C75xx" >&2
  exit 1
  ;;
esac
