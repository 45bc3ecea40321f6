/* plm-evaluator: entry point. */
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
  if (argc == 2 && strcmp(argv[1], "--version") == 0) {
    printf("plm-evaluator %s\n", PLM_VERSION);
    return 0;
  }
  fprintf(stderr, "usage: plm-evaluator --version\n");
  return 2;
}
