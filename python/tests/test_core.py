"""tessera.attention on NumPy arrays: results, tracing, errors. The numbers themselves are the conformance suite's."""
import gc
import sys
import threading
import weakref

import numpy as np
import pytest

import tessera
from conftest import close, exact


@pytest.mark.parametrize("mask, allowed", [
    (None, None),
    ("causal", lambda b, h, q, k: k <= q),
    (tessera.causal() & tessera.window(5, 0), lambda b, h, q, k: (k <= q) & (q - k <= 5)),
    (~tessera.causal() | "k < 3", lambda b, h, q, k: (k > q) | (k < 3)),
    (lambda b, h, q, k: (q >= k) & (q - k <= 1 + h), lambda b, h, q, k: (q >= k) & (q - k <= 1 + h)),
    (lambda b, h, q, k: tessera.where(b == 0, q // 8 == k // 8, (q + k) % 3 != 1),
     lambda b, h, q, k: np.where(b == 0, q // 8 == k // 8, (q + k) % 3 != 1)),
])
def test_masks(data, mask, allowed):
    q, k, v = data()
    o, lse = tessera.attention(q, k, v, mask=mask, return_lse=True)
    want, want_lse = exact(q, k, v, allowed)
    assert type(o) is np.ndarray and o.dtype == np.float32
    close(o, want, v)
    assert np.array_equal(np.isfinite(lse), np.isfinite(want_lse))
    close(np.where(np.isfinite(lse), lse, 0), np.where(np.isfinite(want_lse), want_lse, 0), np.ones(1))


@pytest.mark.parametrize("score, change", [
    (tessera.softcap(3.0), lambda s, b, h, q, k: 3 * np.tanh(s / 3)),
    ("s + 0.1 * (k - q)", lambda s, b, h, q, k: s + 0.1 * (k - q)),
    (lambda s, b, h, q, k: s * (1 + h) / 2 - abs(q - k) ** 0.5, lambda s, b, h, q, k: s * (1 + h) / 2 - abs(q - k) ** 0.5),
    (lambda s, b, h, q, k: tessera.maximum(s, -1) + tessera.sigmoid(s), lambda s, b, h, q, k: np.maximum(s, -1) + 1 / (1 + np.exp(-s))),
    (tessera.ScoreMod("s * 0.5") >> tessera.softcap(2.0), lambda s, b, h, q, k: 2 * np.tanh(s / 4)),
])
def test_scores(data, score, change):
    q, k, v = data()
    close(tessera.attention(q, k, v, mask="causal", score=score), exact(q, k, v, lambda b, h, q, k: k <= q, change)[0], v)


def test_captured_arrays_are_read_at_the_call(data):
    q, k, v = data()
    slope, ids = np.array([0.1, 0.2, 0.3, 0.4], np.float32), np.repeat(np.arange(5), 10)[:47]
    score = tessera.score_mod(lambda s, b, h, q, k: s + tessera.capture(slope, "slope")[h] * (k - q))
    mask = tessera.mask_mod(lambda b, h, q, k: tessera.capture(ids)[q] == tessera.capture(ids)[k])
    assert score.captures == ("slope",) and mask.captures == ("m0",)
    assert repr(mask) == "(m0:int[q] == m0:int[k])"
    for _ in range(2):
        close(tessera.attention(q, k, v, mask=mask, score=score),
              exact(q, k, v, lambda b, h, q, k: ids[q] == ids[k], lambda s, b, h, q, k: s + slope[h] * (k - q))[0], v)
        slope *= -2  # seen by the next call
        ids[:] = np.minimum(ids, 2)
    close(tessera.attention(q, k, v, mask=tessera.documents(ids), score=tessera.alibi("a"), bind={"a": slope}),
          exact(q, k, v, lambda b, h, q, k: ids[q] == ids[k], lambda s, b, h, q, k: s + slope[h] * (k - q))[0], v)


def test_sinks_offsets_and_packed_rows(data):
    q, k, v = data()
    sinks = np.array([0.5, -1, 2, 0], np.float32)
    close(tessera.attention(q, k, v, sinks=sinks), exact(q, k, v, sinks=sinks)[0], v)
    shifted = exact(q, k, v, lambda b, h, q, k: k <= q - 14)[0]  # the first query stands on the first key
    close(tessera.attention(q, k, v, mask="causal", q_offset=0), shifted, v)
    close(tessera.attention(q, k, v, mask="causal", q_offset=np.array([0, 0])), shifted, v)
    cu_q, cu_k = np.array([0, 33, 66], np.int32), np.array([0, 47, 94], np.int32)
    rows = tessera.attention(q.reshape(66, 4, 24), k.reshape(94, 2, 24), v.reshape(94, 2, 24), mask="causal", cu_q=cu_q, cu_k=cu_k)
    assert np.array_equal(rows.reshape(q.shape), tessera.attention(q, k, v, mask="causal"))


def test_outputs_of_the_caller(data):
    q, k, v = data(dv=10)
    out, lse = np.full((2, 33, 4, 10), np.nan, np.float32), np.full((2, 4, 33), np.nan, np.float32)
    got = tessera.attention(q, k, v, out=out, lse=lse)
    assert got[0] is out and got[1] is lse
    close(out, exact(q, k, v)[0], v)
    out.flags.writeable = False
    with pytest.raises(tessera.Error, match="read only"):
        tessera.attention(q, k, v, out=out)
    half = tessera.attention(q.astype(np.float16), k.astype(np.float16), v.astype(np.float16), out_dtype="float32")
    assert half.dtype == np.float32
    assert tessera.attention(q.astype(np.float16), k.astype(np.float16), v.astype(np.float16)).dtype == np.float16


def test_views_are_not_copied(data):
    q, k, v = data()
    wide = np.full((2, 4, 33, 30), np.nan, np.float32)
    wide[..., 3:27] = q.transpose(0, 2, 1, 3)
    assert np.array_equal(tessera.attention(wide[..., 3:27].transpose(0, 2, 1, 3), k, v), tessera.attention(q, k, v))
    with pytest.raises(tessera.Error, match="stride 2 over its dim"):
        tessera.attention(np.zeros((2, 33, 4, 48), np.float32)[..., ::2], k, v)


def test_merge_joins_parts(data):
    q, k, v = data()
    parts = [tessera.attention(q, k[:, a:b], v[:, a:b], return_lse=True) for a, b in ((0, 20), (20, 47))]
    o, lse = tessera.merge(*parts[0], *parts[1])
    want = exact(q, k, v)
    close(o, want[0], v), close(lse, want[1], np.ones(1))


def test_plans_print_and_compare(data):
    q, k, v = data()
    plan = tessera.plan(q, k, v, mask="causal")
    assert "mask=(k <= q)" in repr(plan.problem) and "band" in repr(plan.tiles) and plan.backend in repr(plan)
    assert plan == tessera.plan(q, k, v, mask=tessera.causal()) and plan != tessera.plan(q, k, v)
    text = tessera.explain(q, k, v, mask="causal")
    assert all(part in text for part in ("problem", "tiles", "plan", repr(plan.problem)))
    assert tessera.backends()[plan.backend][0]
    for name, (available, about) in tessera.backends().items():
        if not available:
            with pytest.raises(tessera.Error, match="pinned backend"):
                tessera.attention(q, k, v, backend=name)


@pytest.mark.parametrize("call, error, text", [
    (lambda q, k, v: tessera.attention(q, k[..., :8], v), "invalid_shape", "k has dim 8, q has dim 24"),
    (lambda q, k, v: tessera.attention(q.astype(np.float64), k, v), "invalid_dtype", "q is float64"),
    (lambda q, k, v: tessera.attention(q, k, v, mask="causal &"), "parse", "causal &"),
    (lambda q, k, v: tessera.attention(q, k, v, mask=lambda b, h, q, k: q - k), "invalid_mod", "a mask is true or false"),
    (lambda q, k, v: tessera.attention(q, k, v, score=lambda s, b, h, q, k: q < k), "invalid_mod", "a score change is a number"),
    (lambda q, k, v: tessera.attention(q, k, v, mask="ids:int[q] == 3"), "invalid_mod", "ids"),
    (lambda q, k, v: tessera.attention(q, k, v, score=tessera.alibi(np.zeros(3, np.float32))), "invalid_shape", "slope"),
    (lambda q, k, v: tessera.attention(q, k, v, backend="gpu"), "invalid_option", "gpu"),
    (lambda q, k, v: tessera.window(-1, 0), "invalid_option", "-1"),
    (lambda q, k, v: tessera.attention(q, k, v, mask=tessera.documents(np.zeros(47, int)) & tessera.documents(np.ones(47, int))),
     "invalid_option", "'ids' names two different arrays"),
])
def test_errors(data, call, error, text):
    with pytest.raises(tessera.Error) as raised:
        call(*data())
    assert text in str(raised.value)
    assert raised.value.code == error


@pytest.mark.parametrize("mask, text", [
    (lambda b, h, q, k: q >= k and k > 2, "no truth value"),
    (lambda b, h, q, k: 0 <= k <= q, "no truth value"),
    (lambda b, h, q, k: True if q > k else False, "where(condition, a, b)"),
    (lambda b, h, q, k: q >= "k", "not supported between"),
    (lambda b, h, q: q >= 0, "positional argument"),
    (lambda b, h, q, k: np.arange(4) < q, "not supported between"),
    (17, "a function of (b, h, q, k) is allowed"),
])
def test_functions_that_cannot_be_traced(data, mask, text):
    with pytest.raises(TypeError) as raised:
        tessera.attention(*data(), mask=mask)
    assert text in str(raised.value)


def test_numpy_refuses_expressions_as_indices(data):
    with pytest.raises(IndexError, match="integers"):
        tessera.mask_mod(lambda b, h, q, k: np.arange(50)[q] == k)


def test_an_error_in_the_function_is_the_users():
    class Mine(Exception):
        pass

    def mask(b, h, q, k):
        raise Mine("here")

    with pytest.raises(Mine, match="here"):
        tessera.mask_mod(mask)
    kept = []
    tessera.mask_mod(lambda b, h, q, k: kept.append(q) or q >= k)
    with pytest.raises(tessera.Error):
        tessera.mask_mod(lambda b, h, q, k: kept[0] >= k)  # of another trace


def test_nothing_is_kept(data):
    q, k, v = data()

    class Table(np.ndarray):
        pass

    table = np.zeros(4, np.float32).view(Table)
    gone = weakref.ref(table)
    out = tessera.attention(q, k, v, score=lambda s, b, h, q, k: s + tessera.capture(table)[h])
    before = sys.getrefcount(q)
    for _ in range(10):
        tessera.attention(q, k, v)
    assert sys.getrefcount(q) == before
    del table
    gc.collect()
    assert gone() is None and out.shape == q.shape


def test_threads_run_side_by_side(data):
    q, k, v = data(sq=200, sk=200)
    want = tessera.attention(q, k, v, mask="causal")
    wrong = []

    def work():
        for _ in range(20):
            if not np.array_equal(tessera.attention(q, k, v, mask=lambda b, h, q, k: k <= q), want):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_suite_runs():
    report = tessera.check(cases=4, named=False)
    assert report["cases"] >= 12 and report["failures"] == []
