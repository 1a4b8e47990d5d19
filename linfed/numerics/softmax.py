"""Softmax and cross-entropy of logits (..., c, m), with classes before samples."""

from __future__ import annotations

import numpy as np

from linfed._types import Array, Indices


def softmax_residual(logits: Array, labels: Array | Indices) -> Array:
    """Replace logits (..., c, m) by softmax minus the labels' indicator, in place, and return them.

    Labels (..., m) are integers below c. Logits must be C-contiguous; (c, m) with many samples is fastest. The largest
    logit is subtracted first, so no finite logits overflow.
    """
    logits -= logits.max(axis=-2, keepdims=True)
    np.exp(logits, out=logits)
    c, m = logits.shape[-2:]
    # Sums along and across memory have different orders; a single sample must give the result of many samples.
    logits *= 1.0 / (logits.sum(axis=-2, keepdims=True) if m > 1 else logits.cumsum(axis=-2)[..., -1:, :])
    indices = labels.reshape(-1, m).astype(np.intp)
    indices *= m
    indices += np.arange(m)
    indices += np.arange(0, logits.size, c * m)[:, None]
    flat = logits.reshape(-1)
    flat[indices] -= 1.0
    return logits


def cross_entropy(logits: Array, labels: Indices) -> Array:
    """Return ``log sum_j exp(l_j) - l_y`` of each sample, (..., m)."""
    top = logits.max(axis=-2)
    label_logits = np.take_along_axis(logits, labels[..., None, :], axis=-2)[..., 0, :]
    return np.asarray(np.log(np.exp(logits - top[..., None, :]).sum(axis=-2)) + (top - label_logits))
