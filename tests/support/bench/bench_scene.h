/* What benchmarks print about the machine, and their default corpora. */
#ifndef PLM_TESTS_SUPPORT_BENCH_BENCH_SCENE_H
#define PLM_TESTS_SUPPORT_BENCH_BENCH_SCENE_H

/* Prints the processor, its cores and the load as one line. */
void bench_machine(void);

/* Ingests 200,000 random sequences with the lengths of proteins (log-normal, median 300) and the
 * composition of UniProt and returns the corpus; NULL if that fails. */
const char *bench_corpus(void);
/* Ingests the real sequences of tests/data (under PLM_ROOT or the working directory). */
const char *bench_sample_corpus(void);

#endif
