/* What a call prints on stdout or stderr. Errors end the process. */
#ifndef PLM_TESTS_SUPPORT_CAPTURE_H
#define PLM_TESTS_SUPPORT_CAPTURE_H

struct capture {
  int descriptor, saved, file;
};

/* From here on, what is written to the descriptor (1 or 2) goes to a file. */
void capture_begin(struct capture *capture, int descriptor);
/* Puts the descriptor back. The caller frees the text. */
char *capture_end(struct capture *capture);

#endif
