/* What benchmarks say about the machine, and a corpus where none is given. */
#ifndef PLM_TESTS_SUPPORT_BENCH_SCENE_H
#define PLM_TESTS_SUPPORT_BENCH_SCENE_H

/* Prints the processor, its cores and the load as one line. */
void bench_machine(void);

/* 200,000 random sequences with the lengths of proteins (log-normal, median 300) and the
 * composition of UniProt, ingested. NULL when that fails. */
const char *bench_corpus(void);
/* The 2,000 real sequences of tests/data (PLM_ROOT, else the working directory), ingested. */
const char *bench_sample_corpus(void);

#endif
