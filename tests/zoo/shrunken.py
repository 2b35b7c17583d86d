"""Architectures of transformers from shrunken configurations: the same code on few and narrow layers."""
import torch

import naming

LAYERS = 2
SIZES = [  # by the names that configurations use; only ever smaller than what stands there
    (LAYERS, "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers num_encoder_layers num_decoder_layers encoder_num_layers decoder_num_layers depth "
             "num_blocks text_layers vision_layers num_decoder_blocks"),
    (256, "hidden_size d_model n_embd dim embed_dim encoder_hidden_size decoder_hidden_size embedding_size word_embed_proj_dim projection_dim width text_embed_dim emb_dim "
         "model_dim"),
    (4, "num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads num_encoder_attention_heads num_decoder_attention_heads num_local_experts "
       "num_experts n_routed_experts moe_num_experts"),
    (2, "num_key_value_heads num_kv_heads num_experts_per_tok n_head_kv"),
    (64, "head_dim d_kv attention_head_size v_head_dim qk_nope_head_dim"),
    (512, "intermediate_size ffn_dim d_ff encoder_ffn_dim decoder_ffn_dim n_inner ffn_hidden_size moe_intermediate_size shared_expert_intermediate_size d_inner"),
    (8192, "vocab_size"),
    (1024, "max_position_embeddings n_positions"),
]
WANTED = {name: size for size, text in SIZES for name in text.split()}


def shrink(config, only=None):
    for name, value in list(vars(config).items()):
        if hasattr(value, "to_dict") and hasattr(value, "model_type"):
            shrink(value, only)
        elif type(value) is int and name in WANTED and value > WANTED[name] and (only is None or WANTED[name] in only):
            setattr(config, name, WANTED[name])
    for name, value in list(vars(config).items()):
        if name in ("layer_types", "mlp_layer_types", "block_types", "layers_block_type", "attention_types") and isinstance(value, (list, tuple)):
            setattr(config, name, list(value)[:LAYERS])
        vocabulary = getattr(config, "vocab_size", None)
        if name.endswith("_token_id") and type(value) is int and isinstance(vocabulary, int) and value >= vocabulary:
            setattr(config, name, 1)
    if getattr(config, "vocab_size", 0) is None:
        config.vocab_size = 32
    if getattr(config, "pad_token_id", 0) is None:
        config.pad_token_id = 0
    if hasattr(config, "apply_spec_augment"):
        config.apply_spec_augment = False  # masks as indices: sizes that depend on values
    if hasattr(config, "use_cache"):
        config.use_cache = False
    return config


def build(kind, class_name):
    import transformers

    cls = getattr(transformers, class_name)
    error = None
    for only in (None, (LAYERS, 4, 8192, 1024), (LAYERS, 8192), ()):
        try:
            config = shrink(cls.config_class(), only)
            with torch.device("meta"):
                size = sum(p.numel() for p in cls(config).parameters())
            if size <= 40_000_000:
                return cls(config)
            error = ValueError("too large")
        except Exception as e:
            error = error or e
    raise error


def _find(config, *names):
    for name in names:
        value = getattr(config, name, None)
        if value:
            return value
    for value in vars(config).values():
        if hasattr(value, "model_type") and (found := _find(value, *names)):
            return found


def _image(config):
    size = _find(config, "image_size", "input_size", "crop_size") or 224
    size = tuple(size) if isinstance(size, (list, tuple)) else (size, size)
    return _find(config, "num_channels", "in_channels") or 3, size


def linears(model):
    """The first two kinds of projection within attention, by their own names."""
    found = []
    for name, module in model.named_modules():
        last = name.rsplit(".", 1)[-1]
        if type(module).__name__ in ("Linear", "Conv1D") and last in ("q_proj", "v_proj", "query", "value", "c_attn", "q", "v", "q_lin", "v_lin", "query_key_value"):
            found.append(last)
    return sorted(set(found))


def tokens(batch, length):
    return torch.zeros(batch, length, dtype=torch.long)


def make(task, kind, class_name, batch, length):
    model = build(kind, class_name)
    return model, inputs(task, kind, model, batch, length)


def inputs(task, kind, model, batch, length):
    """Arguments to try in turn, as people call such models: with labels or without, by a hash of the name."""
    config, main = model.config, model.main_input_name
    how = naming.digest(f"arguments {task} {kind}")[0] % 3
    text = dict(input_ids=tokens(batch, length))
    marked = dict(text, attention_mask=torch.ones(batch, length, dtype=torch.long))
    labels = dict(labels=tokens(batch, length))
    if task in ("causal-lm", "masked-lm", "token-classification"):
        return [((), k) for k in ([text, {**text, **labels}, {**marked, **labels}][how], text, {**text, **labels})]
    if task == "sequence-classification":
        one = dict(labels=torch.zeros(batch, dtype=torch.long))
        return [((), k) for k in ([text, {**text, **one}, {**marked, **one}][how], text)]
    if task == "seq2seq":
        decoder = dict(decoder_input_ids=tokens(batch, length // 2))
        target = dict(labels=tokens(batch, length // 2))
        return [((), k) for k in ([{**text, **decoder}, {**text, **target}, {**marked, **target}][how], {**text, **decoder}, {**text, **target})]
    channels, size = _image(config)
    image = torch.zeros(batch, channels, *size)
    if task in ("zero-shot-image", "image-text"):
        return [((), dict(text, pixel_values=image))]
    if task == "video-classification":
        frames = _find(config, "num_frames") or 8
        return [((torch.zeros(batch, frames, channels, *size),), {}), ((torch.zeros(batch, frames, channels, 224, 224),), {})]
    if main == "pixel_values":
        one = {"image-classification": dict(labels=torch.zeros(batch, dtype=torch.long)), "semantic-segmentation": dict(labels=torch.zeros(batch, *size, dtype=torch.long))}.get(task, {})
        given = [((), dict(pixel_values=image, **one))] if one and how == 2 else []
        return [*given, ((image,), {}), ((torch.zeros(batch, channels, 224, 224),), {}), ((torch.zeros(batch, channels, 384, 384),), {})]
    mels = _find(config, "num_mel_bins", "input_feat_per_channel", "feature_size", "num_mel_bins") or 80
    frames = _find(config, "max_length", "max_source_positions") or 1024
    decoder = dict(decoder_input_ids=tokens(batch, 16)) if task == "speech-seq2seq" else {}
    shapes = [(16000,), (frames, mels), (256, mels), (mels, 2 * frames), (mels, 3000), (80, 256), (256, 80), (160, 160)]
    return [((), {main: torch.zeros(batch, *s), **decoder}) for s in shapes]
