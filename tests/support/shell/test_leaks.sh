#!/usr/bin/env bash
# A script fails if a program that `expect` ran, or that such a program started, has lost memory.
. "$PLM_ROOT/tests/support/shell/lib.sh"
[ -n "$leak_library" ] || { echo "there is no leak sanitizer in this build"; exit 77; }

cat >leaky.c <<'END'
#include <stdlib.h>
#include <string.h>

static char *volatile kept;

/* leaky HOW: with `starts`, another process loses memory. */
int main(int argc, char **argv)
{
  if (argc > 1 && strcmp(argv[1], "starts") == 0) return system("./plm-leaky loses") != 0;
  kept = malloc(1000);
  if (argc > 1 && strcmp(argv[1], "loses") == 0) kept = malloc(10);
  return 0;
}
END
gcc -o plm-leaky leaky.c
PATH=$PWD:$PATH
expect 0 plm-leaky keeps
leaks
expect 0 plm-leaky loses
if grep -qs 'fatal error' leaks.plm-leaky.*; then
  echo "a leak sanitizer cannot look at processes here"
  exit 77
fi
for how in loses starts; do
  rm -f leaks.plm-*
  expect 0 plm-leaky $how
  (leaks) 2>said && fail "plm-leaky $how loses memory, and nobody notices"
  says said '1000 byte'
  says said 'FAILED at line [0-9]+: a program has not released memory$'
done
# at the end of a script
PLM_TMP=$PWD/other bash -c '
  mkdir "$PLM_TMP"
  . "$PLM_ROOT/tests/support/shell/lib.sh"
  PATH=$OLDPWD:$PATH
  expect 0 plm-leaky loses' 2>said && fail "a script that lost memory succeeds"
says said '1000 byte'
rm -f leaks.plm-*
