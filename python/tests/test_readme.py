"""The README's Python runs as pasted, and so does the first page of docs/python.md."""
import pathlib
import re

import numpy as np

import tessera

ROOT = pathlib.Path(__file__).resolve().parents[2]


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def test_the_readme():
    code = blocks("README.md")
    assert len(code) == 1
    names = {}
    exec(code[0], names)
    q, k, o = names["q"], names["k"], names["o"]
    assert o.shape == q.shape
    assert np.array_equal(o, tessera.attention(q, k, k, mask=tessera.causal() & tessera.window(255, 0)))


def test_the_first_block_of_the_page(data, capsys):
    q, k, v = data()
    names = {"q": q, "k": k, "v": v, "slopes": np.array([0.5, 0.25, 0.125, 0.1], np.float32)}
    exec(blocks("docs/python.md")[0], names)
    assert names["lse"].shape == (2, 4, 33)
    assert "window" not in capsys.readouterr().err and names["o"].shape == q.shape
