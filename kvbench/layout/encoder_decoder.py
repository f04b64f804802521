"""Encoder-decoder models: the decoder's self-attention grows per token, cross-attention is fixed per request."""

from __future__ import annotations

from kvbench.layout.attention import attention
from kvbench.layout.config import Config
from kvbench.layout.kv import Cross, KVLayout


def read_whisper(config: Config) -> KVLayout:
    """Whisper: num_hidden_layers is the encoder; the encoder always yields max_source_positions tokens."""
    return _decoder(config, config.count("max_source_positions"))


def read_bart(config: Config) -> KVLayout:
    """BART and mBART: cross-attention keeps as many tokens as the request's own prompt."""
    return _decoder(config, None)


def read_t5(config: Config) -> KVLayout:
    """T5: heads of d_kv, which is not d_model / num_heads."""
    config.ignore("is_encoder_decoder")
    heads = config.count("num_heads")
    layer = attention("full", heads, config.count("d_kv"))
    layers = (layer,) * config.count("num_decoder_layers")
    return KVLayout(layers, query_heads=heads, cross=Cross(layers, None))


def _decoder(config: Config, tokens: int | None) -> KVLayout:
    config.ignore("is_encoder_decoder")
    heads, width = config.count("decoder_attention_heads"), config.count("d_model")
    if width % heads:
        config.refuse(f"d_model={width} is not a multiple of decoder_attention_heads={heads}")
    layers = (attention("full", heads, width // heads),) * config.count("decoder_layers")
    return KVLayout(layers, query_heads=heads, cross=Cross(layers, tokens))
