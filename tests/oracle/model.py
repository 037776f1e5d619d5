#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The model once more, in plain numpy and float64, on what a run wrote with --dump DIR.

    python3 tests/oracle/model.py DIR

It reads plan.json (the model's numbers), weights and inputs, computes every step of the run from its embeddings on, and
compares the residual after each layer, the experts chosen, the hidden states and the logits. Nothing here is shared
with the C++: it is written from the mathematics alone, so that a mistake would have to be made twice. Weights are
whole, tokens are in order: there is no parallelism here at all.

Exit code 0: all within the bound; 1: not; 2: the dump cannot be read.
"""
import json
import os
import sys

import numpy as np

BOUND = 1e-4  # relative to the largest element of a token's row; the run is float32
TIE = 1e-5  # scores closer than this, relative to the largest, may be chosen either way


class Tensors:
    """The tensors of one safetensors file, read when they are asked for."""

    TYPES = {"F32": np.float32, "I32": np.int32, "I64": np.int64}

    def __init__(self, path):
        self.bytes = np.memmap(path, mode="r", dtype=np.uint8)
        size = int(self.bytes[:8].view(np.uint64)[0])
        self.header = json.loads(self.bytes[8 : 8 + size].tobytes())
        self.data = self.bytes[8 + size :]

    def __contains__(self, name):
        return name in self.header

    def __getitem__(self, name):
        entry = self.header[name]
        begin, end = entry["data_offsets"]
        values = np.frombuffer(self.data[begin:end].tobytes(), dtype=self.TYPES[entry["dtype"]])
        values = values.reshape(entry["shape"])
        return values.astype(np.float64) if entry["dtype"] == "F32" else values.astype(np.int64)


# ---- small mathematics ------------------------------------------------------------------------------------


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def rms_norm(x, gain, eps):
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * gain


def rotate(x, positions, dims, theta, inverse=False):
    """Turns pairs (2i, 2i+1) of the last `dims` by position·theta^(−2i/dims). x [tokens, ..., D], positions [tokens]."""
    if dims == 0:
        return x
    angles = positions[:, None] * theta ** (-np.arange(0, dims, 2) / dims)
    angles = angles.reshape(len(positions), *([1] * (x.ndim - 2)), dims // 2) * (-1 if inverse else 1)
    cos, sin = np.cos(angles), np.sin(angles)
    out = x.copy()
    even, odd = x[..., -dims::2], x[..., x.shape[-1] - dims + 1 :: 2]
    out[..., -dims::2] = even * cos - odd * sin
    out[..., x.shape[-1] - dims + 1 :: 2] = even * sin + odd * cos
    return out


def attend(q, keys, values, seen, scale, sink):
    """q [T, heads, D], keys [heads, K, D], values [heads, K, Dv], seen [T, K] → [T, heads, Dv]."""
    scores = np.einsum("thd,hkd->thk", q, keys) * scale
    scores = np.where(seen[:, None, :], scores, -np.inf)
    top = scores.max(axis=-1, keepdims=True)
    if sink is not None:
        top = np.maximum(top, sink[None, :, None])
    weights = np.exp(scores - top)
    total = weights.sum(axis=-1, keepdims=True)
    if sink is not None:  # joins the denominator only
        total = total + np.exp(sink[None, :, None] - top)
    return np.einsum("thk,hkd->thd", weights / total, values)


def is_prime(n):
    return n > 1 and all(n % d for d in range(2, int(n**0.5) + 1))


class Model:
    def __init__(self, directory):
        with open(os.path.join(directory, "plan.json"), encoding="utf-8") as file:
            self.plan = json.load(file)
        load = lambda *name: Tensors(os.path.join(directory, *name) + ".safetensors")
        self.weights, self.inputs = load("weights", "weights"), load("inputs")
        self.layers, self.result = load("layers"), load("result")
        self.m = m = self.plan["model"]
        self.get = lambda key, otherwise=0: m.get(key, otherwise)
        self.eps = self.get("rms_eps")
        self.streams = self.get("hyper_connections", 1)
        self.sequence = self.inputs["sequence"]
        self.history = self.inputs["history"]
        self.cache = [self.first_cache(layer) for layer in range(m["layers"])]
        self.engrams = list(self.get("engram_layers", []))
        self.errors = []  # (step, what, relative error)
        self.wrong = []
        self.ties = 0
        if self.engrams:
            self.set_up_engram()

    def weight(self, layer, name):
        return self.weights[f"layers.{layer}.{name}"]

    def per_layer(self, key, layer):
        values = self.get(key, [])
        return values[layer] if values else 0

    # ---- what is remembered -------------------------------------------------------------------------------

    def first_cache(self, layer):
        """One dictionary a sequence: positions and entries of tokens, compressed entries, the open block."""
        ratio = self.per_layer("compress_ratios", layer)

        def rows(name, place):
            sequences, places = self.inputs[f"{name}.{layer}.sequence"], self.inputs[f"{name}.{layer}.{place}"]
            return sequences, places, self.inputs[f"{name}.{layer}"]

        sequences, positions, entries = rows("kv", "position")
        caches = []
        for s in range(len(self.history)):
            mine = sequences == s
            cache = {"positions": positions[mine], "entries": entries[mine], "compressed": None, "open": []}
            if ratio > 0:
                owner, _, compressed = rows("kv_compressed", "entry")
                cache["compressed"] = compressed[owner == s]
            if ratio > 1:
                owner, _, candidates = rows("kv_open", "position")
                gates = self.inputs[f"kv_open_gate.{layer}"]
                cache["open"] = list(zip(candidates[owner == s], gates[owner == s]))
            caches.append(cache)
        return caches

    # ---- Engram -------------------------------------------------------------------------------------------

    def set_up_engram(self):
        per_layer = (self.m["engram_ngram"] - 1) * self.m["engram_heads"]
        candidate = self.m["engram_vocab_per_head"] - 1
        self.primes = {}
        for layer in self.engrams:  # one walk over all layers: no prime is used twice
            found = []
            while len(found) < per_layer:
                candidate += 1
                if is_prime(candidate):
                    found.append(candidate)
            self.primes[layer] = found
        self.multipliers = dict(zip(self.engrams, self.inputs["engram.multipliers"].tolist()))
        self.seen_ids = []  # a sequence: position → id
        for s, start in enumerate(self.history):
            ids = self.inputs["context_ids"][s]
            self.seen_ids.append({int(start) - len(ids) + i: int(each) for i, each in enumerate(ids)})

    def engram_rows(self, layer, sequence, position):
        ids = self.seen_ids[sequence]
        rows, offset, hash_ = [], 0, 0
        for k in range(self.m["engram_ngram"]):
            token = ids[position - k] if position >= k else 0
            hash_ ^= (token * self.multipliers[layer][k]) & (2**64 - 1)
            if k == 0:
                continue
            signed = hash_ - 2**64 if hash_ >= 2**63 else hash_
            for _ in range(self.m["engram_heads"]):
                prime = self.primes[layer][len(rows)]
                rows.append(signed % prime + offset)  # never negative in Python
                offset += prime
        return rows

    def engram(self, layer, wide, positions):
        hidden, n = self.m["hidden"], self.streams
        table, scales = self.weight(layer, "engram.table"), self.weight(layer, "engram.scale")
        feats = []
        for t, position in enumerate(positions):
            rows = self.engram_rows(layer, int(self.sequence[t]), int(position))
            values = table[rows] * np.repeat(scales[rows], 32, axis=1)[:, : table.shape[1]]  # a scale for 32 dims
            feats.append(values.reshape(-1))
        keys = np.array(feats) @ self.weight(layer, "engram.wkv").T
        keys, value = keys[:, : n * hidden].reshape(-1, n, hidden), keys[:, n * hidden :]
        query = rms_norm(wide, self.weight(layer, "engram.h_norm").reshape(n, hidden), self.eps)
        keys = rms_norm(keys, self.weight(layer, "engram.key_norm").reshape(n, hidden), self.eps)
        d = (query * keys).sum(axis=-1) / np.sqrt(hidden)
        gate = sigmoid(np.where(d < 0, -1.0, 1.0) * np.sqrt(np.maximum(np.abs(d), 1e-6)))
        return wide + gate[:, :, None] * value[:, None, :]

    # ---- the residual -------------------------------------------------------------------------------------

    def sublayer(self, layer, name, wide, function):
        """function(x [T, H]) inside hyper-connections, or the plain residual of one stream."""
        n = self.streams
        if n == 1:
            return wide + function(wide[:, 0])[:, None]
        flat = wide.reshape(len(wide), -1)
        mixes = flat @ self.weight(layer, name + ".fn").T
        mixes = mixes / np.sqrt((flat * flat).mean(axis=-1, keepdims=True) + 1e-6)
        scale, base = self.weight(layer, name + ".scale"), self.weight(layer, name + ".base")
        pre, post, comb = np.split(mixes, [n, 2 * n], axis=1)
        pre = sigmoid(pre * scale[0] + base[:n]) + 1e-6
        post = 2 * sigmoid(post * scale[1] + base[n : 2 * n])
        comb = softmax((comb * scale[2] + base[2 * n :]).reshape(-1, n, n)) + 1e-6
        for _ in range(20):  # Sinkhorn
            comb = comb / (comb.sum(axis=2, keepdims=True) + 1e-6)
            comb = comb / (comb.sum(axis=1, keepdims=True) + 1e-6)
        out = function(np.einsum("tm,tmh->th", pre, wide))
        return post[:, :, None] * out[:, None, :] + np.einsum("tmj,tmh->tjh", comb, wide)

    # ---- attention ----------------------------------------------------------------------------------------

    def query(self, layer, x):
        if self.get("q_lora") > 0:
            low = rms_norm(x @ self.weight(layer, "attn.wq_a").T, self.weight(layer, "attn.q_norm"), self.eps)
            q = low @ self.weight(layer, "attn.wq_b").T
        else:
            q = x @ self.weight(layer, "attn.wq").T
        return q.reshape(len(x), self.m["heads"], -1)

    def attention(self, layer, x, positions):
        x = rms_norm(x, self.weight(layer, "attn_norm"), self.eps)
        kind = self.m["attention"]
        rope, ratio = self.get("rope_dim"), self.per_layer("compress_ratios", layer)
        theta = self.m["compress_rope_theta"] if ratio > 0 else self.m["rope_theta"]
        q = self.query(layer, x)
        if kind == "latent":
            q = q / np.sqrt((q * q).mean(axis=-1, keepdims=True) + self.eps)
        q = rotate(q, positions, rope, theta)
        if kind == "latent":
            entries = rms_norm(x @ self.weight(layer, "attn.wkv").T, self.weight(layer, "attn.kv_norm"), self.eps)
            entries = rotate(entries, positions, rope, theta)
        elif kind == "mla":
            entries = x @ self.weight(layer, "attn.wkv").T
            rank = self.m["kv_lora"]
            latent = rms_norm(entries[:, :rank], self.weight(layer, "attn.kv_norm"), self.eps)
            entries = np.concatenate([latent, rotate(entries[:, rank:], positions, rope, theta)], axis=1)
        else:
            heads = self.m.get("kv_heads", 1)
            k = (x @ self.weight(layer, "attn.wk").T).reshape(len(x), heads, -1)
            v = (x @ self.weight(layer, "attn.wv").T).reshape(len(x), heads, -1)
            entries = np.concatenate([rotate(k, positions, rope, theta), v], axis=2).reshape(len(x), -1)
        candidates = x @ self.weight(layer, "attn.compress.wkv").T if ratio > 0 else None
        gates = x @ self.weight(layer, "attn.compress.wgate").T if ratio > 1 else None

        out = []
        for s, cache in enumerate(self.cache[layer]):
            rows = np.flatnonzero(self.sequence == s)
            cache["positions"] = np.concatenate([cache["positions"], positions[rows]])
            cache["entries"] = np.concatenate([cache["entries"], entries[rows]])
            for t in rows if ratio > 0 else []:
                self.compress(layer, cache, candidates[t], None if gates is None else gates[t], int(positions[t]), theta)
            out.append((rows, self.of_sequence(layer, cache, q[rows], positions[rows], ratio)))
        o = np.zeros((len(x), self.m["heads"], out[0][1].shape[2]))
        for rows, values in out:
            o[rows] = values
        if kind == "latent":  # the value is a key, turned by its position: turn it back by the query's
            o = rotate(o, positions, rope, theta, inverse=True)
        if kind == "latent" and self.get("o_groups") > 0:
            grouped = o.reshape(len(x), self.m["o_groups"], -1)
            low = np.einsum("tgk,grk->tgr", grouped, self.weight(layer, "attn.wo_a"))
            return low.reshape(len(x), -1) @ self.weight(layer, "attn.wo_b").T
        return o.reshape(len(x), -1) @ self.weight(layer, "attn.wo").T

    def compress(self, layer, cache, candidate, gate, position, theta):
        ratio = self.per_layer("compress_ratios", layer)
        entry, at = candidate, position
        if ratio > 1:
            cache["open"].append((candidate, gate))
            if position % ratio != ratio - 1:
                return
            block = [np.array(each) for each in zip(*cache["open"])]
            cache["open"] = []
            entry, at = (softmax(block[1], axis=0) * block[0]).sum(axis=0), position - ratio + 1
        entry = rms_norm(entry, self.weight(layer, "attn.compress.norm"), self.eps)
        entry = rotate(entry[None], np.array([at]), self.get("rope_dim"), theta)
        cache["compressed"] = np.concatenate([cache["compressed"], entry])

    def of_sequence(self, layer, cache, q, positions, ratio):
        """Attention of one sequence's new tokens over what its cache holds."""
        kind, heads = self.m["attention"], self.m["heads"]
        window = self.per_layer("window", layer)
        seen = cache["positions"][None, :] <= positions[:, None]
        if window > 0:
            seen &= cache["positions"][None, :] > positions[:, None] - window
        entries = cache["entries"]
        sink = self.weight(layer, "attn.sink") if self.get("sink", False) else None
        if kind == "latent":
            if ratio > 0:
                entries = np.concatenate([entries, cache["compressed"]])
                complete = np.arange(len(cache["compressed"]))[None, :] < ((positions + 1) // ratio)[:, None]
                seen = np.concatenate([seen, complete], axis=1)
            keys = np.broadcast_to(entries, (heads, *entries.shape))
            return attend(q, keys, keys, seen, self.m["head_dim"] ** -0.5, sink)
        if kind == "mla":  # not absorbed: a key and a value of each head are made from the latent
            rank = self.m["kv_lora"]
            latent, turned = entries[:, :rank], entries[:, rank:]
            keys = np.einsum("kr,hrn->hkn", latent, self.weight(layer, "attn.wk_b"))
            keys = np.concatenate([keys, np.broadcast_to(turned, (heads, *turned.shape))], axis=2)
            values = np.einsum("kr,hvr->hkv", latent, self.weight(layer, "attn.wv_b"))
            return attend(q, keys, values, seen, (self.m["nope_dim"] + self.get("rope_dim")) ** -0.5, sink)
        shared = self.m.get("kv_heads", 1)
        pairs = entries.reshape(len(entries), shared, 2, -1).transpose(2, 1, 0, 3)
        keys, values = (np.repeat(each, heads // shared, axis=0) for each in pairs)
        return attend(q, keys, values, seen, self.m["head_dim"] ** -0.5, sink)

    # ---- feed-forward -------------------------------------------------------------------------------------

    def ffn(self, x, w13, w2):
        gate, up = x @ w13[0].T, x @ w13[1].T
        limit = self.get("swiglu_limit")
        if limit > 0:
            gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
        return (gate * sigmoid(gate) * up) @ w2.T

    def feed_forward(self, step, layer, x):
        x = rms_norm(x, self.weight(layer, "ffn_norm"), self.eps)
        if self.get("routed") == 0 or layer < self.get("dense_layers"):
            return self.ffn(x, self.weight(layer, "mlp.w13"), self.weight(layer, "mlp.w2"))
        chosen, weights = self.gate(step, layer, x)
        w13, w2 = self.weight(layer, "moe.w13"), self.weight(layer, "moe.w2")
        out = np.zeros_like(x)
        for expert in np.unique(chosen):
            tokens, places = np.nonzero(chosen == expert)
            out[tokens] += weights[tokens, places][:, None] * self.ffn(x[tokens], w13[expert], w2[expert])
        if self.get("shared") > 0:
            out += self.ffn(x, self.weight(layer, "moe.shared.w13"), self.weight(layer, "moe.shared.w2"))
        return out

    def gate(self, step, layer, x):
        logits = x @ self.weight(layer, "moe.gate").T
        kind = self.m["score"]
        if kind == "softmax":
            scores = softmax(logits)
        elif kind == "sigmoid":
            scores = sigmoid(logits)
        else:  # sqrtsoftplus
            scores = np.sqrt(np.logaddexp(0, logits))
        name = f"steps.{step}.layers.{layer}."
        run = self.result[name + "experts"]
        own = self.choose(layer, scores, run)
        weights = np.take_along_axis(scores, own, axis=1)
        if self.get("normalise", True):
            weights = weights / (weights.sum(axis=1, keepdims=True) + 1e-20)
        weights = weights * self.get("scaling", 1)
        self.compare(step, f"layer {layer} expert weights", weights, self.result[name + "expert_weights"])
        return own, weights

    def choose(self, layer, scores, run):
        """The experts by the scores; where the run's differ by no more than rounding, or are drawn, the run's."""
        if self.plan["workload"].get("routing", {}).get("kind", "gate") != "gate":
            return run
        bias = f"layers.{layer}.moe.bias"
        biased = scores + self.weights[bias] if bias in self.weights else scores.copy()
        groups, top_k = self.get("gate_groups", 1), self.m["top_k"]
        if groups > 1:  # a token's experts are of the groups whose two best sum highest
            grouped = biased.reshape(len(biased), groups, -1)
            best = np.sort(grouped, axis=2)[:, :, -2:].sum(axis=2)
            kept = np.argsort(-best, axis=1, kind="stable")[:, : self.get("gate_top_groups", 1)]
            allowed = np.zeros((len(biased), groups), dtype=bool)
            np.put_along_axis(allowed, kept, True, axis=1)
            biased = np.where(np.repeat(allowed, grouped.shape[2], axis=1), biased, -np.inf)
        own = np.argsort(-biased, axis=1, kind="stable")[:, :top_k]
        for t in np.flatnonzero((own != run).any(axis=1)):
            gap = np.abs(biased[t, own[t]] - biased[t, run[t]]).max()
            if gap <= TIE * np.abs(biased[t][np.isfinite(biased[t])]).max():
                self.ties += 1
                own[t] = run[t]
            else:
                self.wrong.append(f"layer {layer}, token {t}: the run chose {run[t]}, the oracle {own[t]}, gap {gap:.2e}")
        return own

    # ---- a run --------------------------------------------------------------------------------------------

    def compare(self, step, what, own, run):
        own, run = own.reshape(len(own), -1), run.reshape(len(run), -1)
        error = np.abs(own - run).max(axis=1) / np.maximum(np.abs(own).max(axis=1), 1e-300)
        worst = float(error.max()) if np.isfinite(error).all() else float("inf")
        self.errors.append((step, what, worst))

    def step(self, number):
        ids, positions = self.inputs[f"steps.{number}.ids"], self.inputs[f"steps.{number}.positions"]
        if self.engrams:
            for s, position, token in zip(self.sequence, positions, ids):
                self.seen_ids[s][int(position)] = int(token)
        wide = np.repeat(self.weights["embed"][ids][:, None], self.streams, axis=1)
        for layer in range(self.m["layers"]):
            if layer in self.engrams:
                wide = self.engram(layer, wide, positions)
            wide = self.sublayer(layer, "hc_attn", wide, lambda x: self.attention(layer, x, positions))
            wide = self.sublayer(layer, "hc_ffn", wide, lambda x: self.feed_forward(number, layer, x))
            self.compare(number, f"layer {layer}", wide, self.layers[f"steps.{number}.layers.{layer}"])
        hidden = rms_norm(wide.sum(axis=1), self.weights["norm"], self.eps)
        logits = hidden[self.inputs["last_token"]] @ self.weights["head"].T
        self.compare(number, "hidden", hidden, self.result[f"steps.{number}.hidden"])
        self.compare(number, "logits", logits, self.result[f"steps.{number}.logits"])
        next_ids = self.result[f"steps.{number}.next_ids"]
        for s in np.flatnonzero(logits.argmax(axis=1) != next_ids):
            gap = logits[s].max() - logits[s, next_ids[s]]
            if gap <= TIE * np.abs(logits[s]).max():
                self.ties += 1
            else:
                self.wrong.append(f"step {number}, sequence {s}: the run's next id {next_ids[s]} is not the largest logit's")

    def run(self):
        steps = sum(1 for name in self.result.header if name.endswith(".hidden"))
        for number in range(steps):
            self.step(number)
        if self.get("phase") != "prefill" and self.plan["workload"].get("phase", "decode") == "decode":
            for number in range(1, steps):  # what was chosen is what is fed
                if (self.inputs[f"steps.{number}.ids"] != self.result[f"steps.{number - 1}.next_ids"]).any():
                    self.wrong.append(f"step {number}: the ids fed are not those the step before chose")


def main():
    if len(sys.argv) != 2:
        print("usage: model.py DIR, a directory that `paratope run FILE --dump DIR` wrote", file=sys.stderr)
        return 2
    try:
        model = Model(sys.argv[1])
    except (OSError, ValueError, KeyError) as error:
        print(f"error: {sys.argv[1]} is no dump: {error!r}", file=sys.stderr)
        return 2
    model.run()
    print(f"{'step':>4}  {'what':<26} {'max relative error':>18}")
    for step, what, error in model.errors:
        mark = "" if error <= BOUND else "  <-- above the bound"
        if not what.endswith("weights") or mark:
            print(f"{step:>4}  {what:<26} {error:>18.2e}{mark}")
    worst = max(error for _, _, error in model.errors)
    for line in model.wrong[:10]:
        print(f"wrong: {line}")
    good = worst <= BOUND and not model.wrong
    print(f"{'equal' if good else 'NOT equal'}: worst {worst:.2e} of at most {BOUND:.0e}, {model.ties} ties")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
