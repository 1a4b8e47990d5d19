"""Softmax and cross-entropy of logits that have the classes before the samples, (..., c, m)."""

from __future__ import annotations

import numpy as np

from linfed._types import Array, Indices


def softmax_residual(logits: Array, labels: Array | Indices) -> Array:
    """Turn logits (..., c, m) into softmax minus the labels' indicator, in place, and return them.

    Labels are (..., m), whole numbers below c; logits are C-contiguous, and fastest as (c, m) with many samples. The
    largest logit is taken away first: any finite logits will do.
    """
    logits -= logits.max(axis=-2, keepdims=True)
    np.exp(logits, out=logits)
    c, m = logits.shape[-2:]
    # A sum along memory is taken in another order than one across it: a single sample must not differ from many.
    logits *= 1.0 / (logits.sum(axis=-2, keepdims=True) if m > 1 else logits.cumsum(axis=-2)[..., -1:, :])
    said = labels.reshape(-1, m).astype(np.intp)
    said *= m
    said += np.arange(m)
    said += np.arange(0, logits.size, c * m)[:, None]
    flat = logits.reshape(-1)
    flat[said] -= 1.0
    return logits


def cross_entropy(logits: Array, labels: Indices) -> Array:
    """Return ``log sum_j exp(l_j) - l_y`` of each sample, (..., m)."""
    top = logits.max(axis=-2)
    said = np.take_along_axis(logits, labels[..., None, :], axis=-2)[..., 0, :]
    return np.asarray(np.log(np.exp(logits - top[..., None, :]).sum(axis=-2)) + (top - said))
