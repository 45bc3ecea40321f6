/* Embeds a file in a program when it is compiled, so that the program needs no file beside it. */
#ifndef PLM_COMMON_BASE_FILES_EMBEDDED_FILE_H
#define PLM_COMMON_BASE_FILES_EMBEDDED_FILE_H

/* Defines `const char symbol[]`, which the file's header declares: the bytes of the file, and a
 * NUL. path: from the root of the source tree. The Makefile says that the object depends on the
 * file. */
#define PLM_EMBED(symbol, path)                        \
  __asm__(".pushsection .rodata\n"                     \
          ".global " #symbol "\n"                      \
          ".type " #symbol ", @object\n" #symbol ":\n" \
          ".incbin \"" path "\"\n"                     \
          ".byte 0\n"                                  \
          ".size " #symbol ", . - " #symbol "\n"       \
          ".popsection\n")

#endif
