"""A loader with mosaicml-streaming, a process of its own: it needs other versions of some packages than the
PyTorch peers. It reads the sequences from shards on the local disk, in the library's shuffled order, and
tokenizes each as it is read.

peer_streaming.py FASTA FOLDER MAX_LENGTH BATCH_TOKENS THREADS answers each line "VERB COUNT" on stdin with a
line of JSON. A verb is `streaming_N`, with N workers; its COUNT is seconds."""

import importlib.metadata
import json
import os
import shutil
import sys

import torch
from chunk_loader import Chunks, make_tokenizer, sequences_of, verbs_of

SHARD_BYTES = 1 << 24
SAMPLES = 256  # that a worker takes from the common order at a time


def write_shards(fasta, folder):
    from streaming import MDSWriter

    with MDSWriter(
        out=folder, columns={"sequence": "str"}, size_limit=SHARD_BYTES, progress_bar=False
    ) as out:
        for residues in sequences_of(fasta):
            out.write({"sequence": residues.decode()})


def make_documents(folder, tokenizer, max_length):
    from streaming import StreamingDataset

    class Documents(StreamingDataset):
        def __getitem__(self, index):
            text = super().__getitem__(index)["sequence"]
            ids = tokenizer(text, truncation=True, max_length=max_length)["input_ids"]
            return torch.tensor(ids, dtype=torch.int32)

    return Documents(local=folder, shuffle=True, batch_size=SAMPLES)


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # a library may print to stdout, which is for answers only
    fasta, folder = sys.argv[1:3]
    max_length, batch_tokens, threads = map(int, sys.argv[3:])
    torch.set_num_threads(threads)
    os.makedirs(folder)
    tokenizer = make_tokenizer()
    shards = os.path.join(folder, "shards")
    write_shards(fasta, shards)

    def make_chunks(workers):
        own = f"{shards}-{workers}"  # the library lets a folder be read by one data set
        shutil.copytree(shards, own, copy_function=os.link)
        return Chunks(make_documents(own, tokenizer, max_length), max_length, batch_tokens)

    verbs = verbs_of("streaming", make_chunks)
    version = importlib.metadata.version("mosaicml-streaming")
    print(json.dumps({"mosaicml-streaming": version}), file=answers, flush=True)
    for line in sys.stdin:
        verb, count = line.split()
        try:
            answer = verbs[verb](int(count))
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {str(error)[:400]}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
