"""Arrays of torch and JAX in tessera.attention: the framework, type and strides of the inputs, without a copy."""
import numpy as np
import pytest

import tessera
from conftest import close, exact

torch = pytest.importorskip("torch")
jnp = pytest.importorskip("jax.numpy")


def rounded(arrays, dtype):
    return tuple(torch.from_numpy(x).to(dtype) for x in arrays)


def test_jax_gives_jax(data):
    q, k, v = data()
    o, lse = tessera.attention(*map(jnp.asarray, (q, k, v)), mask="causal", return_lse=True)
    want, want_lse = exact(q, k, v, lambda b, h, q, k: k <= q)
    assert isinstance(o, jnp.ndarray) and isinstance(lse, jnp.ndarray)
    close(np.asarray(o), want, v), close(np.asarray(lse), want_lse, np.ones(1))


def test_jax_bfloat16_has_the_bits_of_torch(data):
    q, k, v = data()
    of_jax = tessera.attention(*(jnp.asarray(x, dtype=jnp.bfloat16) for x in (q, k, v)))
    of_torch = tessera.attention(*rounded((q, k, v), torch.bfloat16))
    assert of_jax.dtype == jnp.bfloat16 and of_torch.dtype == torch.bfloat16
    assert np.array_equal(np.asarray(of_jax.astype(jnp.float32)), of_torch.float().numpy())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_torch_views_are_read_where_they_lie(data, dtype):
    q, k, v = rounded(data(), dtype)
    want = tessera.attention(q, k, v)
    heads_first = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
    assert torch.equal(tessera.attention(*heads_first), want)
    out = torch.full_like(want, float("nan"))
    assert tessera.attention(q, k, v, out=out) is out and torch.equal(out, want)
    shared = k[:1].expand(2, -1, -1, -1)
    assert torch.equal(tessera.attention(q, shared, v), tessera.attention(q, shared.contiguous(), v))


def test_captured_tensors_of_another_framework(data):
    q, k, v = data()
    slope = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.bfloat16)
    close(tessera.attention(q, k, v, score=tessera.alibi(slope)),
          exact(q, k, v, None, lambda s, b, h, q, k: s + slope.float().numpy()[h] * (k - q))[0], v)


def test_gradients_are_refused_while_they_are_recorded(data):
    q, k, v = rounded(data(), torch.float32)
    q.requires_grad_()
    with pytest.raises(tessera.Error, match="no backward pass yet") as raised:
        tessera.attention(q, k, v)
    assert raised.value.code == "unsupported"
    with torch.no_grad():
        want = tessera.attention(q, k, v)
    assert torch.equal(tessera.attention(q.detach(), k, v), want)


def test_small_calls_are_cheap(data):
    """Eight microseconds over the C++ call; the fastest of many, with room for a busy machine."""
    import time

    q, k, v = rounded(data(b=1, sq=4, sk=4, hq=1, hkv=1, d=32), torch.float32)
    fastest = float("inf")
    for _ in range(200):
        begin = time.perf_counter()
        for _ in range(50):
            tessera.attention(q, k, v)
        fastest = min(fastest, (time.perf_counter() - begin) / 50)
    assert fastest < 24e-6
