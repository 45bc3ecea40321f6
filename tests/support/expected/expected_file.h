/* Texts that a test compares as a whole with a file of the tree, because they are long. */
#ifndef PLM_TESTS_SUPPORT_EXPECTED_EXPECTED_FILE_H
#define PLM_TESTS_SUPPORT_EXPECTED_EXPECTED_FILE_H

/* Fails the test, with the first line that differs, unless tests/NAME holds exactly this text. With
 * PLM_WRITE_EXPECTED in the environment it writes the file instead; read the difference then. */
void expected_file(const char *name, const char *text);

#endif
