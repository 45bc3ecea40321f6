#!/usr/bin/env bash
# A script fails if a program that `expect` ran, or that such a program started, has lost memory.
. "$PLM_ROOT/tests/support/shell/lib.sh"
[ -n "$leak_library" ] || { echo "there is no leak sanitizer in this build"; exit 77; }

cat >leaky.c <<'END'
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static char *volatile kept;

/* leaky HOW: with `starts`, another process loses memory; with `unloads`, a library that is unloaded. */
int main(int argc, char **argv)
{
  if (argc > 1 && strcmp(argv[1], "unloads") == 0) {
    void *library = dlopen("./careless.so", RTLD_NOW);
    void (*lose)(void) = (void (*)(void))dlsym(library, "lose");
    lose();
    return dlclose(library);
  }
  if (argc > 1 && strcmp(argv[1], "starts") == 0) return system("./plm-leaky loses") != 0;
  kept = malloc(1000);
  if (argc > 1 && strcmp(argv[1], "loses") == 0) kept = malloc(10);
  return 0;
}
END
# Names that the sanitizer would map, where a library was, if it looked for them.
name=$(printf 'a_long_name_%.0s' {1..8})
printf "int $name%d;\n" {1..20000} >names.c
gcc -o plm-leaky leaky.c names.c
cat >careless.c <<'END'
/* A library that loses memory in functions which are far apart. */
#include <stdlib.h>

void *volatile dropped;
#define FAR_APART __asm__ volatile("jmp 1f; .skip 262144; 1:")
#define DEFINE(n) static void lose_##n(void) { FAR_APART; dropped = malloc(1000); }
#define CALL(n) lose_##n();
#define EIGHT(do, n) do(n##0) do(n##1) do(n##2) do(n##3) do(n##4) do(n##5) do(n##6) do(n##7)
EIGHT(DEFINE, 1) EIGHT(DEFINE, 2) EIGHT(DEFINE, 3) EIGHT(DEFINE, 4) EIGHT(DEFINE, 5) EIGHT(DEFINE, 6)
void lose(void) { EIGHT(CALL, 1) EIGHT(CALL, 2) EIGHT(CALL, 3) EIGHT(CALL, 4) EIGHT(CALL, 5) EIGHT(CALL, 6) }
END
gcc -shared -fPIC -o careless.so careless.c
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
# another library, which is gone when the sanitizer looks
rm -f leaks.plm-*
expect 0 plm-leaky unloads
grep -q ' leak of ' leaks.plm-leaky.* || fail "the library has lost nothing: $(cat leaks.plm-leaky.*)"
leaks
# at the end of a script
PLM_TMP=$PWD/other bash -c '
  mkdir "$PLM_TMP"
  . "$PLM_ROOT/tests/support/shell/lib.sh"
  PATH=$OLDPWD:$PATH
  expect 0 plm-leaky loses' 2>said && fail "a script that lost memory succeeds"
says said '1000 byte'
rm -f leaks.plm-*
