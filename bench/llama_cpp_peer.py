#!/usr/bin/env python3
"""One measurement of llama.cpp, through its Python package, as JSON: the peer's side of bench/compare.py.

    llama_cpp_peer.py MODEL THREADS TEST...     with TEST one of
        prefill:N   decode:DEPTH:KV   stream:CONTEXT:KV   sessions:N     (KV: f16 or q8)
Needs llama-cpp-python, built for this machine in an environment of its own:
    CMAKE_ARGS="-DGGML_NATIVE=ON" pip install --no-binary llama-cpp-python llama-cpp-python numpy
The tokens, the warm-up (8 steps) and the measured steps (64) are those of `ballast bench`.
"""
import json
import statistics
import sys
import time

if {"-h", "--help"} & set(sys.argv[1:]):  # before the import: the package may not be there
    print(__doc__.strip())
    sys.exit(0)
import llama_cpp as llama  # noqa: E402

WARM_UP, MEASURED, BATCH = 8, 64, 512


class Peer:
    def __init__(self, path, threads):
        llama.llama_backend_init()
        self.threads = threads
        self.model = llama.llama_model_load_from_file(path.encode(), llama.llama_model_default_params())
        if not self.model:
            sys.exit(f"llama.cpp cannot load {path}")
        vocab = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(self.model))
        self.ids = [100 + i * 7919 % (min(vocab, 40000) - 200) for i in range(20000)]

    def open(self, cells, kv, sequences=1):
        params = llama.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max = cells, 2048, BATCH, sequences
        params.n_threads = params.n_threads_batch = self.threads
        if kv == "q8":  # its quantised cache needs flash attention
            params.type_k = params.type_v = llama.GGML_TYPE_Q8_0
            params.flash_attn_type = 1
        context = llama.llama_init_from_model(self.model, params)
        if not context:
            sys.exit("llama.cpp cannot make a context")
        return context

    def feed(self, context, begin, count):
        for at in range(begin, begin + count, 2048):
            piece = self.ids[at:min(begin + count, at + 2048)]
            tokens = (llama.llama_token * len(piece))(*piece)
            if llama.llama_decode(context, llama.llama_batch_get_one(tokens, len(piece))) != 0:
                sys.exit("llama.cpp refused a batch")
        llama.llama_get_logits_ith(context, -1)  # waits for the result

    def steps(self, step, tokens_per_step=1):
        times = []
        for i in range(WARM_UP + MEASURED):
            begin = time.perf_counter()
            step(i)
            times.append(time.perf_counter() - begin)
        return MEASURED * tokens_per_step / sum(times[WARM_UP:])

    def prefill(self, n):
        context = self.open(8192, "f16")
        rates = []
        for rep in range(4 if n <= 1024 else 2):
            llama.llama_memory_clear(llama.llama_get_memory(context), True)
            begin = time.perf_counter()
            self.feed(context, 0, n)
            if rep > 0:
                rates.append(n / (time.perf_counter() - begin))
        llama.llama_free(context)
        return statistics.median(rates)

    def decode(self, depth, kv):
        context = self.open(8192, kv)
        if depth:
            self.feed(context, 0, depth)
        rate = self.steps(lambda i: self.feed(context, depth + i, 1))
        llama.llama_free(context)
        return rate

    def stream(self, cells, kv):
        """Past roll-over with four kept tokens: each step removes one token and shifts the others."""
        context = self.open(cells, kv)
        memory = llama.llama_get_memory(context)
        self.feed(context, 0, cells)

        def step(i):
            llama.llama_memory_seq_rm(memory, 0, 4, 5)
            llama.llama_memory_seq_add(memory, 0, 5, cells, -1)
            self.feed(context, cells + i, 1)

        rate = self.steps(step)
        llama.llama_free(context)
        return rate

    def sessions(self, n):
        context = self.open(512 * n, "f16", n)
        batch = llama.llama_batch_init(n, 0, 1)
        batch.n_tokens = n

        def step(i):
            for s in range(n):
                batch.token[s], batch.pos[s], batch.n_seq_id[s], batch.logits[s] = self.ids[i + s], i, 1, 1
                batch.seq_id[s][0] = s
            if llama.llama_decode(context, batch) != 0:
                sys.exit("llama.cpp refused a batch")
            llama.llama_get_logits_ith(context, 0)

        rate = self.steps(step, n)
        llama.llama_batch_free(batch)
        llama.llama_free(context)
        return rate


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    peer = Peer(sys.argv[1], int(sys.argv[2]))
    rates = {}
    for test in sys.argv[3:]:
        name, *args = test.split(":")
        rates[test] = getattr(peer, name)(*[int(a) if a.isdigit() else a for a in args])
    print(json.dumps(rates))


if __name__ == "__main__":
    main()
