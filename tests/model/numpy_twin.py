"""All three families once more, in NumPy and float64, from the published formulas.

Written to be compared with, so it shares nothing with the package: no torch, no batches, no cache,
no fused anything. One text at a time, one head at a time. A model is its config as a plain dict
(`config.model_dump()`) and its weights by name; `part` hands each function its own weights.

In here a text is x (T, D), what it reads is (S, D), and `seen` (T, S) is True where it may look.
"""

import math

import numpy as np

# --- the three families -----------------------------------------------------------------------


def encoder_only(config, weights, ids, lengths=None, types=None):
    """The output for each text, stacked."""
    states = encoded(config, weights, ids, lengths, types)
    return outputs(config, weights, states, real_lengths(ids, lengths))


def encoded(config, weights, ids, lengths=None, types=None):
    """The states of an encoder-only model, (B, T, D)."""
    types = np.zeros_like(ids) if types is None else types
    table = part(weights, "embedding")
    return np.stack(
        [
            stack(
                config["encoder"],
                part(weights, "encoder"),
                embed(config["embedding"], table, text, kinds),
                before_end(len(text), len(text), length),
            )
            for text, kinds, length in zip(ids, types, real_lengths(ids, lengths), strict=True)
        ]
    )


def decoder_only(config, weights, ids, lengths=None):
    states = [
        stack(
            config["decoder"],
            part(weights, "decoder"),
            embed(config["embedding"], part(weights, "embedding"), text),
            before_end(len(text), len(text), length) & not_after(len(text)),
        )
        for text, length in zip(ids, real_lengths(ids, lengths), strict=True)
    ]
    return outputs(config, weights, np.stack(states), real_lengths(ids, lengths))


def encoder_decoder(config, weights, source, target, source_lengths=None, target_lengths=None):
    lengths = real_lengths(target, target_lengths)
    pairs = zip(source, target, real_lengths(source, source_lengths), lengths, strict=True)
    states = [translated(config, weights, *pair) for pair in pairs]
    return outputs(config, weights, np.stack(states), lengths)


def translated(config, weights, source, target, source_length, target_length):
    """The decoder's states for one target text that reads one source text."""
    own = config["source"] is not None
    memory = stack(
        config["encoder"],
        part(weights, "encoder"),
        embed(
            config["source" if own else "embedding"],
            part(weights, "source" if own else "embedding"),
            source,
        ),
        before_end(len(source), len(source), source_length),
    )
    return stack(
        config["decoder"],
        part(weights, "decoder"),
        embed(config["embedding"], part(weights, "embedding"), target),
        before_end(len(target), len(target), target_length) & not_after(len(target)),
        memory,
        before_end(len(target), len(source), source_length),
    )


def part(weights, name):
    """The weights below that name, named from there on."""
    return {
        key.removeprefix(f"{name}."): value
        for key, value in weights.items()
        if key.startswith(f"{name}.")
    }


def real_lengths(ids, lengths):
    return np.full(len(ids), ids.shape[1]) if lengths is None else lengths


# --- masks ------------------------------------------------------------------------------------


def before_end(T, S, length):
    """Keys behind the end of the text are padding."""
    return np.tile(np.arange(S) < length, (T, 1))


def not_after(T):
    """Row t has its True up to and including column t."""
    return np.tril(np.ones((T, T), dtype=bool))


# --- from ids to the last state ---------------------------------------------------------------


def embed(choice, w, ids, types=None):
    x = w["weight"][ids]
    if choice["scaled"]:
        x = x * math.sqrt(x.shape[-1])
    if choice["token_types"]:
        x = x + w["types"][np.zeros_like(ids) if types is None else types]
    return x


def stack(choice, w, x, seen, memory=None, memory_seen=None):
    """All blocks, with the position scheme they share and the norms at both ends."""
    x = x + added_positions(choice["position"], part(w, "position"), *x.shape)
    if choice["input_norm"] is not None:
        x = norm(choice["input_norm"], part(w, "norm_in"), x)
    if choice["embedding_width"] is not None:  # Lan et al. 2020, section 3.1
        x = linear(part(w, "widen"), x)
    together = choice["layers"] // (choice["unique_layers"] or choice["layers"])
    for layer in range(choice["layers"]):
        here, sees = looks(choice, layer, seen)
        weights = part(w, str(layer // together))
        x = block(choice, here, weights, part(w, "position"), x, sees, memory, memory_seen)
    if choice["norm_placement"]["kind"] in ("pre_norm", "parallel_norm", "sandwich_norm"):
        x = norm(choice["norm"], part(w, "norm_out"), x)
    return x


def looks(choice, layer, seen):
    """The position scheme of that layer, and what it sees."""
    local = choice["local"]
    if local is None or (local["layers"] is not None and layer not in local["layers"]):
        return choice["position"], seen
    T = len(seen)
    near = [[-local["before"] <= s - t <= local["after"] for s in range(T)] for t in range(T)]
    return local["position"] or choice["position"], seen & np.array(near)


def block(choice, position, w, position_weights, x, seen, memory, memory_seen):
    def self_attention(y):
        return attention(choice, part(w, "attention"), y, y, seen, position, position_weights)

    def cross_attention(y):
        return attention(choice, part(w, "cross"), y, memory, memory_seen)

    def change(y):
        return feed_forward(choice["feed_forward"], part(w, "feed_forward"), y)

    parts = [("attention", self_attention), ("feed_forward", change)]
    if memory is not None:
        parts.insert(1, ("cross", cross_attention))

    kind = choice["norm_placement"]["kind"]
    if kind == "parallel_norm":  # Black et al. 2022, section 2.1
        one = self_attention(norm(choice["norm"], part(w, "attention_in"), x))
        return x + one + change(norm(choice["norm"], part(w, "feed_forward_in"), x))
    if kind == "single_residual_norm":  # A = Attention(X), then LayerNorm(FFN(A) + A)
        x = self_attention(x)
        x = x if memory is None else x + cross_attention(x)
        return norm(choice["norm"], part(w, "feed_forward_out"), change(x) + x)
    for name, compute in parts:
        if kind == "post_norm":
            x = norm(choice["norm"], part(w, f"{name}_out"), x + compute(x))
        elif kind == "sandwich_norm":
            made = compute(norm(choice["norm"], part(w, f"{name}_in"), x))
            x = x + norm(choice["norm"], part(w, f"{name}_join.norm"), made)
        elif not part(w, f"{name}_in"):  # bare
            x = x + compute(x)
        else:
            x = x + compute(norm(choice["norm"], part(w, f"{name}_in"), x))
    return x


def linear(w, x):
    return x @ w["weight"].T + w.get("bias", 0.0)


def norm(choice, w, x):
    if choice["kind"] == "rms_norm":  # Zhang and Sennrich 2019
        gain = w["weight"] + choice["unit_offset"]
        return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + choice["eps"]) * gain
    mean = x.mean(axis=-1, keepdims=True)  # Ba et al. 2016
    variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + choice["eps"]) * w["weight"] + w.get("bias", 0.0)


# --- feed-forward -----------------------------------------------------------------------------

erf = np.vectorize(math.erf, otypes=[float])


def feed_forward(choice, w, x):
    bend = activation(choice)
    if choice["kind"] in ("swiglu", "geglu", "reglu"):  # Shazeer 2020, equation 6
        return linear(part(w, "down"), bend(linear(part(w, "gate"), x)) * linear(part(w, "up"), x))
    return linear(part(w, "down"), bend(linear(part(w, "up"), x)))


def activation(choice):
    if choice["kind"] in ("gelu", "geglu"):
        return gelu_by_tanh if choice["tanh"] else gelu
    return {
        "relu": lambda x: np.maximum(x, 0.0),
        "relu2": lambda x: np.maximum(x, 0.0) ** 2,
        "reglu": lambda x: np.maximum(x, 0.0),
        "silu": lambda x: x / (1.0 + np.exp(-x)),
        "swiglu": lambda x: x / (1.0 + np.exp(-x)),
    }[choice["kind"]]


def gelu(x):
    """x·Φ(x), Φ the distribution function of the normal distribution."""
    return x * 0.5 * (1.0 + erf(x / math.sqrt(2.0)))


def gelu_by_tanh(x):
    """Hendrycks and Gimpel 2016, section 2."""
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


# --- attention --------------------------------------------------------------------------------


def attention(choice, w, x, source, seen, position=None, position_weights=None):
    """Every head by itself, then side by side; without a position scheme, none is used."""
    heads, D = choice["attention"], x.shape[1]
    position = position or {"kind": "none"}
    project = project_slice if heads["kind"] == "block_diagonal" else project_head
    mixed = []
    for h in range(heads["heads"]):
        q, k, v = project(heads, w, h, D, x, source)
        if position["kind"] == "rope":
            q, k = turned(position, q), turned(position, k)
        scale = 1 / math.sqrt(q.shape[1]) if heads["scale"] is None else heads["scale"]
        bias = score_bias(position, position_weights, heads["heads"], h, *seen.shape)
        scores, cap = q @ k.T * scale, heads.get("cap")
        scores = scores if cap is None else cap * np.tanh(scores / cap)
        mixed.append(shares(scores + bias, seen) @ v)
    joined = np.concatenate(mixed, axis=1)
    return joined if heads["kind"] == "block_diagonal" else linear(part(w, "output"), joined)


def shares(scores, seen):
    """Softmax over what is seen; a row that sees nothing is zeros."""
    raised = np.where(seen, np.exp(scores - scores.max(axis=1, keepdims=True)), 0.0)
    total = raised.sum(axis=1, keepdims=True)
    return np.divide(raised, total, out=np.zeros_like(raised), where=total > 0)


def project_head(heads, w, h, D, x, source):
    """Vaswani et al. 2017: the whole input for each head. Ainslie et al. 2023: groups of query
    heads, one after another, share one head of keys and values.
    """
    E = heads["head_width"] or D // heads["heads"]
    group = h // (heads["heads"] // (heads["kv_heads"] or heads["heads"]))
    q = linear(rows_of_head(part(w, "query"), h, E), x)
    k = linear(rows_of_head(part(w, "key"), group, E), source)
    if heads["qk_norm"] is not None:
        q = norm(heads["qk_norm"], part(w, "query_norm"), q)
        k = norm(heads["qk_norm"], part(w, "key_norm"), k)
    width = heads["value_width"] or E
    if heads["value_rank"] is None:
        return q, k, linear(rows_of_head(part(w, "value"), group, width), source)
    columns = slice(group * width, (group + 1) * width)
    return q, k, source @ (w["value.down"] @ w["value.up"][:, columns])


def rows_of_head(w, h, width):
    return {name: value[h * width : (h + 1) * width] for name, value in w.items()}


def project_slice(heads, w, h, D, x, source):
    """The notes: X_i (n × D/h) times a square matrix of the head's own."""
    E = D // heads["heads"]
    columns = slice(h * E, (h + 1) * E)
    return (
        x[:, columns] @ w["query.weight"][h],
        source[:, columns] @ w["key.weight"][h],
        source[:, columns] @ w["value.weight"][h],
    )


# --- positions --------------------------------------------------------------------------------


def added_positions(choice, w, T, D):
    """What each position adds to its embedding, (T, D)."""
    if choice["kind"] == "learned":
        return w["weight"][choice["offset"] : choice["offset"] + T]
    if choice["kind"] == "sinusoidal":
        return np.array([[wave(choice, t, c, D) for c in range(D)] for t in range(T)])
    return np.zeros((T, D))


def wave(choice, t, column, D):
    """PE(t, 2i) = sin(t / base^(2i/D)) and PE(t, 2i+1) = cos of the same (Vaswani et al. 2017).

    Concatenated, the cosines follow the sines. With an endpoint the last exponent is 1 exactly.
    """
    count = math.ceil(D / 2)
    cosine, i = reversed(divmod(column, 2)) if choice["interleaved"] else divmod(column, count)
    exponent = i / (count - 1) if choice["endpoint"] else 2 * i / D
    angle = (t + choice["offset"]) / choice["base"] ** exponent
    return math.cos(angle) if cosine else math.sin(angle)


def turned(choice, x):
    """RoFormer, equation 13: each pair of features as a complex number, times e^(i·t·θ)."""
    width = int(x.shape[1] * choice["fraction"])
    first, second = pairs(width, choice["interleaved"])
    angles = np.outer(np.arange(len(x)), speeds(choice, width))
    numbers = (x[:, first] + 1j * x[:, second]) * np.exp(1j * angles)
    if choice["scaling"]["kind"] == "yarn":
        numbers = numbers * grown(choice["scaling"])
    out = x.copy()
    out[:, first], out[:, second] = numbers.real, numbers.imag
    return out


def pairs(width, adjacent):
    """The columns that are turned together."""
    if adjacent:
        return np.arange(0, width, 2), np.arange(1, width, 2)
    return np.arange(width // 2), np.arange(width // 2, width)


def speeds(choice, width):
    """θ_i = base^(−2i/d), changed by the ways to reach further."""
    stretch, base = choice["scaling"], choice["base"]
    if stretch["kind"] == "ntk":
        base = base * stretch["factor"] ** (width / (width - 2))
    thetas = np.array([base ** (-2 * i / width) for i in range(width // 2)])
    if stretch["kind"] == "linear":
        return thetas / stretch["factor"]
    if stretch["kind"] == "llama3":
        return np.array([slowed(stretch, theta) for theta in thetas])
    if stretch["kind"] == "yarn":
        return np.array([yarn(stretch, base, width, i, theta) for i, theta in enumerate(thetas)])
    return thetas


def yarn(stretch, base, width, i, theta):
    """Peng et al. 2023, section 3.2, with the bounds rounded to whole pairs as in their code."""

    def bound(turns):
        return (
            width
            * math.log(stretch["trained_length"] / (2 * math.pi * turns))
            / (2 * math.log(base))
        )

    low = max(math.floor(bound(stretch["beta_fast"])), 0)
    high = min(math.ceil(bound(stretch["beta_slow"])), width - 1)
    ramp = min(max((i - low) / (high - low), 0.0), 1.0)
    return ramp * theta / stretch["factor"] + (1 - ramp) * theta


def grown(stretch):
    return stretch["attention_factor"] or 0.1 * math.log(stretch["factor"]) + 1


def slowed(stretch, theta):
    """Llama 3.1's rule, told by wavelengths as in its own code."""
    length, low, high = (
        stretch["trained_length"],
        stretch["low_freq_factor"],
        stretch["high_freq_factor"],
    )
    wavelength = 2 * math.pi / theta
    if wavelength < length / high:
        return theta
    if wavelength > length / low:
        return theta / stretch["factor"]
    smooth = (length / wavelength - low) / (high - low)
    return (1 - smooth) * theta / stretch["factor"] + smooth * theta


def score_bias(choice, w, heads, h, T, S):
    """What head h adds to its scores, (T, S) or a plain 0."""
    if choice["kind"] not in ("alibi", "relative_buckets"):
        return 0.0
    distances = [[s - t for s in range(S)] for t in range(T)]
    if choice["kind"] == "alibi":
        return -slopes(heads)[h] * np.abs(distances)
    rows = [[bucket(choice, distance) for distance in row] for row in distances]
    return w["weight"][np.array(rows), h]


def slopes(heads):
    """Press et al. 2022: 2^(−8/n), 2^(−16/n), …; where n is no power of two, the slopes of the
    power below, and after them every other one of the power above.
    """
    power = 2 ** int(math.log2(heads))
    own = [2.0 ** (-8 * i / power) for i in range(1, power + 1)]
    return own if power == heads else own + slopes(2 * power)[0::2][: heads - power]


def bucket(choice, distance):
    """Raffel et al. 2020: distances one by one, then in ranges that grow logarithmically."""
    count, first = choice["buckets"], 0
    if choice["bidirectional"]:
        count //= 2
        first = count if distance > 0 else 0
        far = abs(distance)
    else:
        far = max(-distance, 0)
    single = count // 2
    if far < single:
        return first + far
    grown = math.log(far / single) / math.log(choice["max_distance"] / single) * (count - single)
    return first + min(single + int(grown), count - 1)


# --- outputs ----------------------------------------------------------------------------------


def outputs(config, weights, states, lengths):
    """What the output makes of each text's states, stacked."""
    choice, w, table = config["output"], part(weights, "output"), weights["embedding.weight"]
    answer = {
        "next_token": next_token,
        "masked_token": masked_token,
        "text_vector": text_vector,
        "classify": classify,
    }[choice["kind"]]
    return np.stack([answer(choice, w, table, *text) for text in zip(states, lengths, strict=True)])


def next_token(choice, w, table, x, length):
    matrix = table if choice["tied"] else w["weight"]
    scores = x @ matrix.T * choice["multiplier"] + w.get("bias", 0.0)
    return scores if choice["cap"] is None else choice["cap"] * np.tanh(scores / choice["cap"])


BENDS = {
    "gelu": gelu,
    "gelu_tanh": gelu_by_tanh,
    "relu": lambda x: np.maximum(x, 0.0),
    "silu": lambda x: x / (1.0 + np.exp(-x)),
    "tanh": np.tanh,
}


def masked_token(choice, w, table, x, length):
    bent = BENDS[choice["activation"]](linear(part(w, "change.0"), x))
    x = norm(choice["norm"], part(w, "change.2"), bent)
    return x @ (table if choice["tied"] else w["output.weight"]).T + w.get("output.bias", 0.0)


def text_vector(choice, w, table, x, length):
    vector = pooled(choice["pooling"], x[:length])
    if choice["dense"]:
        vector = np.tanh(linear(part(w, "change.0"), vector))
    size = math.sqrt((vector**2).sum())
    return vector / size if choice["normalize"] and size > 0 else vector


def classify(choice, w, table, x, length):
    vector = pooled(choice["pooling"], x[:length])
    if choice["hidden"] is not None:
        vector = BENDS[choice["activation"]](linear(part(w, "change.0"), vector))
    if choice["norm"] is not None:
        vector = norm(choice["norm"], part(w, "change.2"), vector)
    return linear(part(w, "output.1"), vector)


def pooled(choice, x):
    """One vector for the real positions of a text; zeros if it has none."""
    if len(x) == 0:
        return np.zeros(x.shape[1])
    return {
        "mean": x.mean(axis=0),
        "first": x[0],
        "last": x[-1],
        "max": x.max(axis=0),
    }[choice["kind"]]
