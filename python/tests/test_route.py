"""routed(): torch.nn.functional.scaled_dot_product_attention on Tessera, and back."""
from __future__ import annotations

import threading

import pytest

torch = pytest.importorskip("torch")

import tessera  # noqa: E402
import tessera.torch as tt  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch._dynamo.testing import CompileCounterWithBackend  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention as imported_by_name  # noqa: E402

original = [torch._C._nn.scaled_dot_product_attention]  # in a list, where routes do not look
q = torch.randn(2, 4, 33, 16)


@pytest.fixture(autouse=True)
def torch_is_left_as_it_was():
    yield
    assert F.scaled_dot_product_attention is original[0] and torch._C._nn.scaled_dot_product_attention is original[0]
    assert imported_by_name is original[0] and torch.backends.mha.get_fastpath_enabled()


def test_calls_run_here():
    want = tt.scaled_dot_product_attention(q, q, q, is_causal=True)
    with tt.routed() as route:
        assert F.scaled_dot_product_attention.__name__ == "scaled_dot_product_attention"
        for function in (F.scaled_dot_product_attention, torch._C._nn.scaled_dot_product_attention, imported_by_name):
            assert torch.equal(function(q, q, q, is_causal=True), want)
    assert route.calls == 3 and not route.fallbacks
    imported_by_name(q, q, q), F.scaled_dot_product_attention(q, q, q)
    assert route.calls == 3


def test_nested_routes_pin_their_backends():
    scalar = tessera.attention(q, q, q, heads_first=True, backend="cpu:scalar")
    with tt.routed(strict=False) as outer:
        with tt.routed(backend="cpu:scalar") as inner:
            assert torch.equal(F.scaled_dot_product_attention(q, q, q), scalar)
        F.scaled_dot_product_attention(q, q, q)
        with inner, inner:  # a route can be opened again, also within itself
            F.scaled_dot_product_attention(q, q, q)
        F.scaled_dot_product_attention(q, q, q)
    assert outer.calls == 2 and inner.calls == 2


def test_a_backend_that_is_not_there_is_refused_at_once():
    with pytest.raises(tessera.Error, match="cpu:avx3.*cpu:scalar"):
        tt.routed(backend="cpu:avx3")


@pytest.mark.parametrize("options,text", [
    ({"dropout_p": 0.5}, "dropout_p"), ({"query": q.double(), "key": q.double(), "value": q.double()}, "float64"),
    ({"query": q.clone().requires_grad_()}, "no backward pass")])
def test_strict_routes_refuse_what_others_hand_to_torch(options, text):
    arguments = {"query": q, "key": q, "value": q, **options}
    with tt.routed() as route, pytest.raises(tessera.Error, match=f"{text}.*strict=False"):
        F.scaled_dot_product_attention(**arguments)
    assert route.calls == 0
    with tt.routed(strict=False) as route:
        torch.manual_seed(0)
        got = F.scaled_dot_product_attention(**arguments)
        tt_calls = route.calls
        F.scaled_dot_product_attention(q, q, q)
    torch.manual_seed(0)
    assert torch.equal(got, original[0](**arguments)) and got.requires_grad == arguments["query"].requires_grad
    assert tt_calls == 0 and route.calls == 1 and sum(route.fallbacks.values()) == 1 and text in next(iter(route.fallbacks))
    assert "fallbacks={" in repr(route)


def test_exceptions_close_routes():
    with pytest.raises(KeyError), tt.routed(), tt.routed():
        raise KeyError


def test_as_a_decorator():
    route = tt.routed()

    @route
    def model(x, depth):
        """A model."""
        y = F.scaled_dot_product_attention(x, x, x)
        return model(y, depth - 1) if depth else y

    model(q, 2)
    assert route.calls == 3 and model.__name__ == "model" and model.__doc__ == "A model."


def test_other_threads_are_not_routed():
    ready, leave = threading.Barrier(2), threading.Barrier(2)
    routes, failures = {}, []

    def work(name, backend):
        try:
            with tt.routed(backend=backend) as route:
                ready.wait(20)  # both are open
                for _ in range(20):
                    F.scaled_dot_product_attention(q, q, q)
                routes[name] = route
                leave.wait(20)
        except BaseException as failed:
            failures.append(failed)

    with tt.routed() as outer:
        threads = [threading.Thread(target=work, args=pair) for pair in (("a", "cpu:scalar"), ("b", None))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        bare = []
        thread = threading.Thread(target=lambda: bare.append(F.scaled_dot_product_attention(q.double(), q.double(), q.double())))
        thread.start(), thread.join()
    assert not failures and routes["a"].calls == routes["b"].calls == 20 and outer.calls == 0
    assert bare[0].dtype == torch.float64  # torch's, in a thread without a route


def test_modules_of_torch():
    """nn.MultiheadAttention and an encoder, whose fused layers call no function that could be routed."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True).eval()
    encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    x, padding = torch.randn(2, 9, 32), torch.zeros(2, 9, dtype=torch.bool)
    padding[1, 6:] = True
    with torch.no_grad():
        want, masked = encoder(x), encoder(x, src_key_padding_mask=padding)
        with tt.routed() as route:
            got, got_masked = encoder(x), encoder(x, src_key_padding_mask=padding)
    assert route.calls == 4
    assert (got - want).abs().max() <= 1e-5  # layer norms to about 1, float32
    assert (got_masked - masked)[~padding].abs().max() <= 1e-5


def test_compiled_functions_follow_the_route():
    torch._dynamo.reset()
    frames = CompileCounterWithBackend("aot_eager")
    model = torch.compile(lambda x: F.scaled_dot_product_attention(x * 2, x, x), fullgraph=True, backend=frames)

    def operators():
        return {str(node.target) for graph in frames.graphs[-1:] for node in graph.graph.nodes}

    model(q)
    assert frames.frame_count == 1 and "tessera.attention.default" not in operators()
    with tt.routed():
        routed = model(q)
        assert frames.frame_count == 2 and "tessera.attention.default" in operators()
        model(q)
    model(q)
    assert frames.frame_count == 2  # both are kept
    assert torch.equal(routed, tt.scaled_dot_product_attention(q * 2, q, q))
    with tt.routed(backend="cpu:scalar"):
        assert torch.equal(model(q), tessera.attention(q * 2, q, q, heads_first=True, backend="cpu:scalar"))
