"""Serving runs side by side: did an offload tier bring what was predicted? (pure, but for loading)"""
