"""Do the tests fail where the code is wrong? Mistakes, one at a time, and the tests that should see them.

    python -m tests.tools.mutations [--only WORDS] [--list] [--jobs 2] [--timeout 300]

A mutation is one replacement of text in a file, made in a temporary copy of the repository; what the script is run from
is never touched. Its tests must pass on a copy without it, and one of them must fail with it. A mutation that changes
nothing which anybody could ask for says why. Exit status 1 where any other survives.

The text to be replaced must occur exactly once in its file. Where it no longer does, the code has moved: make the same
mistake where the idea now lives.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
COPIED = (
    *("linfed", "tests", "experiments", "notebooks", "docs", "results/committed"),
    *("CITATION.cff", "README.md", "pyproject.toml"),
)


class Mutation(NamedTuple):
    """A mistake: `old` is replaced by `new`.

    `tests` are those that should see it, likely killers first: "linalg" is test_linalg.py, "tables/grid" is
    tests/tables/test_grid.py, and "linalg:distance" those of its tests whose names contain the word. `equivalent` is
    why none could.
    """

    name: str
    old: str
    new: str
    tests: str
    equivalent: str = ""


# By the file of linfed/ in which they are made.
MUTATIONS = {
    "numerics/linalg.py": [
        Mutation(
            "one orthonormal basis for all",
            "if good.all():\n        return B",
            "if good.any():\n        return B",
            "linalg",
        ),
        Mutation("unequal ranks swapped", "Q1.shape[-1] < Q2", "Q1.shape[-1] > Q2", "linalg"),
        Mutation("columns of zeros count", "if Q1.shape == Q2.shape and not", "if False and not", "prediction/fedrep"),
        Mutation("null directions stay", "np.finfo(float).eps * values[", "0.0 * values[", "linalg"),
        Mutation("small directions go", "np.finfo(float).eps * values[", "1e-4 * values[", "linalg"),
        Mutation("a zero may count as negative", " + 0.0)[", ")[", "linalg"),
        Mutation("pools of old", '_controller("scipy.linalg" in sys.modules)', "_controller(False)", "linalg"),
    ],
    "numerics/least_squares.py": [
        Mutation("dependence without lengths", "RANK_TOLERANCE * lengths).any", "RANK_TOLERANCE).any", "least_squares"),
        Mutation("columns of any unit", "RATIO = 2.0 **", "RATIO = 1e300 * 2.0 **", "least_squares:unit"),
        Mutation("small units first", "np.unique(units)[::-1]", "np.unique(units)", "least_squares:unit"),
        Mutation("large solutions last", "np.argsort(units,", "np.argsort(-units,", "least_squares:unit"),
        Mutation(
            "residual at m = k", "residual[:, counts <= k]", "residual[:, counts < k]", "least_squares explicit:exactly"
        ),
        Mutation("normal equations of any condition", "SAFE_CONDITION = 1e5", "SAFE_CONDITION = 1e12", "least_squares"),
        Mutation(
            "threshold of the shortest shortcut",
            "semidefinite(left, np.diagonal(A,",
            "semidefinite(left, np.diagonal(left,",
            "least_squares_joint:shortest least_squares_joint:ill_conditioned",
        ),
        Mutation(
            "samples that a ridge explains",
            " & (ridge == 0)\n",
            "\n",
            "least_squares",
            "a ridge gets there only where it is lost in rounding, and so is the residual that it leaves",
        ),
    ],
    "numerics/streams.py": [
        Mutation("a tuple of seeds without its length", "(len(seed), *lengths, *seed)", "(*lengths, *seed)", "streams"),
        Mutation("parts of a seed without their lengths", "*lengths, *seed)", "*seed)", "streams"),
        Mutation("a tuple that is an integer", "OF_TUPLES + int(stream)", "int(stream)", "streams"),
    ],
    "numerics/rounding.py": [
        Mutation("rounding errors below a half", " + 2.0**-50 * (product + 1.0)", "", "rounding:as_they_are_written"),
        Mutation("a share rounded down", "np.floor(product + 0.5 + ", "np.floor(product + ", "rounding"),
        Mutation(
            "a half rounded to even",
            "np.floor(product + 0.5 + 2.0**-50 * (product + 1.0))",
            "np.rint(product)",
            "rounding",
        ),
    ],
    "numerics/seeds.py": [
        Mutation("a long seed counted as one word", "max(1, -(-number.bit_length() // 32))", "1", "streams"),
        Mutation("a long trial cut off", " or max(trials) >= _WORD", "", "streams"),
        Mutation("any number of words is three", "n_words == len(self._state) and ", "", "streams"),
        Mutation("words of any size", " and dtype == np.uint64", "", "streams"),
    ],
    "problems/designs.py": [
        Mutation(
            "covariances of other clients",
            "rows @ root[clients].mT",
            "rows @ root[clients - 1].mT",
            "designs_per_client",
        ),
    ],
    "problems/base.py": [
        Mutation(
            "directions beyond the rank", "np.where(kept[..., None, :rank], U", "np.where(True, U", "metrics_reference"
        ),
        Mutation("equal singular values", "kth - following <= least", "kth - following < 0", "metrics_reference"),
    ],
    "problems/given.py": [
        Mutation("truths of the first trials", "array[list(trials)]", "array[: len(trials)]", "given simulation/run"),
    ],
    "problems/shared.py": [
        Mutation("new clients drawn as the old", "Stream.NEW_TRUTH", "Stream.TRUTH", "shared simulation/new_clients"),
        Mutation(
            "another common part", "math.sqrt((1.0 - h) * (1.0 + h))", "(1.0 - h)", "shared:common shared:heads_are"
        ),
    ],
    "problems/similar.py": [
        Mutation(
            "deviations of equal length",
            "np.sqrt(np.vecdot(W, W))[:, :near, None]",
            "self._norm",
            "problems/similar:distrib",
        ),
        Mutation("outliers keep their heads", "        W[:, near:] = 0.0\n", "", "problems/similar:parts"),
        Mutation(
            "new clients drawn as the old", "Stream.NEW_SHORTCUT", "Stream.SHORTCUT", "problems/similar:shortcuts"
        ),
    ],
    "problems/shortcuts.py": [
        Mutation("new clients drawn as the old", "Stream.NEW_SHORTCUT", "Stream.SHORTCUT", "shortcuts:new_clients"),
        Mutation(
            "shortcuts of another length",
            "math.sqrt(size)",
            "math.sqrt(d)",
            "shortcuts:law shortcuts:length",
        ),
    ],
    "problems/underparameterized.py": [
        Mutation("new clients drawn as the old", "Stream.NEW_TRUTH", "Stream.TRUTH", "underparameterized:new_clients"),
    ],
    "data/synthetic.py": [
        Mutation("alpha is a standard deviation", "math.sqrt(alpha)", "alpha", "synthetic:distribution_of_clients"),
        Mutation("variances are standard deviations", "** -0.6", "** -1.2", "synthetic:gaussian"),
        Mutation("held-out samples of training", "Stream.TEST", "Stream.X", "synthetic:depends"),
        Mutation("labels without biases", " + b[i], axis", ", axis", "synthetic:labels"),
    ],
    "data/samples.py": [
        Mutation("trials are held out alike", "share, of_trial)", "share, 0)", "samples:training"),
        Mutation(
            "classes are not held out each",
            "labels if cls._stratified",
            "labels if False",
            "given_classes:share_of_each",
        ),
        Mutation(
            "samples of the first trials", "trials.start, trials.stop, trials.step", "len(trials)", "simulation/run"
        ),
    ],
    "data/explicit.py": [
        Mutation(
            "pooled without sample counts", "sqrt(weights / self.positive_counts)", "sqrt(weights)", "explicit:pooled"
        ),
    ],
    "data/row_batch.py": [
        Mutation("the first half twice", "steps + part * size", "steps + 0 * size", "explicit:split"),
        Mutation("the last minibatch is full", "self.counts - start, 0.0", "self.counts, 0.0", "explicit:minibatches"),
    ],
    "data/classes.py": [
        Mutation("padding has a bias", "X.shape[-2]) < counts[..., None]", "X.shape[-2]) >= 0", "data/classes:padding"),
        Mutation("padding is measured", "np.where(inside, measure(", "np.where(True, measure(", "data/classes:padding"),
        Mutation(
            "balance of all padding", "== j) * inside)", "== j) * 1.0)", "data/classes:balanced data/classes:padding"
        ),
        Mutation(
            "empty clients have balance",
            "self.counts[..., None] > 0, shares",
            "self.counts[..., None] >= 0, shares",
            "data/classes:without_samples",
        ),
        Mutation(
            "parts forget the offset",
            "super()._chosen(index, counts)\n        if self._offset is None:",
            "super()._chosen(index, counts)\n        if True:",
            "data/classes:minibatches",
        ),
        Mutation(
            "offsets in their old order",
            "np.take_along_axis(self._offset, index",
            "np.take_along_axis(self._offset, np.sort(index)",
            "data/classes:minibatches",
        ),
        Mutation(
            "any class is one's own", "np.where(holds[..., None], logits, -np.inf)", "logits", "class_metrics:loops"
        ),
        Mutation(
            "features of the bias",
            "out[..., -1] = rows[..., -1]",
            "out[..., -1] = 0.0",
            "data/classes:slopes",
        ),
        Mutation(
            "half the feature penalty", "V += 2.0 * feature_penalty", "V += feature_penalty", "data/classes:each_client"
        ),
        Mutation("sums for means over clients", "(1.0 / W.shape[1] if", "(1.0 if", "data/classes:slopes"),
        Mutation(
            "no shares of counts",
            "else weights) / self._batch.positive_counts",
            "else weights) + 0.0 * self._batch.positive_counts",
            "data/classes:slopes",
        ),
    ],
    "data/class_sources.py": [
        Mutation(
            "held out are those of the training",
            "Stream.TEST",
            "Stream.X",
            "problems/classes:held_out class_metrics:loops",
        ),
        Mutation(
            "classes of the first clients",
            "holds=take_clients(self.holds, active)",
            "holds=self.holds[:, : active.shape[1]]",
            "class_algorithms:drawn",
        ),
    ],
    "numerics/softmax.py": [
        Mutation("softmax without the label", "flat[indices] -= 1.0", "flat[indices] -= 0.0", "data/classes:loss"),
        Mutation("softmax of raw logits", "logits -= logits.max(axis=-2, keepdims=True)", "pass", "softmax:large"),
        Mutation(
            "cross-entropy of raw logits", "top = logits.max(axis=-2)", "top = 0 * logits.max(axis=-2)", "softmax:large"
        ),
    ],
    "numerics/layers.py": [
        Mutation(
            "no gradient of biases",
            "[g[..., :d] @ B, g[..., d:]]",
            "[g[..., :d] @ B, 0.0 * g[..., d:]]",
            "layers:layers",
        ),
        Mutation("biases in the messages", "out[..., -1] = 0.0", "pass", "layers:layers algorithms/algorithms:classes"),
        Mutation(
            "biases in the products",
            "W[..., :-1] @ W[..., :-1].mT",
            "W @ W.mT",
            "layers:layers algorithms/algorithms:classes",
        ),
    ],
    "problems/classes.py": [
        Mutation("means that are not centred", "v -= v.mean(axis=0)", "pass", "problems/classes:separation"),
        Mutation(
            "largest for mean square", "np.vecdot(v, v).mean()", "np.vecdot(v, v).max()", "problems/classes:separation"
        ),
        Mutation("labels of others' classes", "np.argsort(~holds", "np.argsort(holds", "problems/classes:labels"),
        Mutation("holders are not counted", "holders[chosen] += 1", "pass", "problems/classes:holders"),
        Mutation(
            "means in place of discriminants",
            "else orthonormalize(self.discriminants)",
            "else self.B",
            "problems/classes:bayes",
        ),
        Mutation("Bayes without lengths", "bias = -0.5 *", "bias = -0.0 *", "problems/classes:bayes"),
    ],
    "algorithms/representation/fedrep.py": [
        Mutation(
            "heads of the wrong half",
            "first, second = batch.split()",
            "second, first = batch.split()",
            "fedrep_whitening",
        ),
        Mutation("whitened by a sum", "()[0].mean(axis=1)", "()[0].sum(axis=1)", "fedrep_whitening"),
    ],
    "data/projected/classes.py": [
        Mutation(
            "padding in the noise",
            "        padded = batch.counts",
            "        padded = 0 > batch.counts",
            "projected_classes:noise",
        ),
        Mutation("noise in B's span", "(inner - Q.mT @ noise)", "(inner)", "projected_classes:noise"),
        Mutation("means at Q", "(truth.B.mT @ B)", "(truth.B.mT @ Q)", "projected_classes:numbers"),
        Mutation(
            "penalty without weights",
            "feature_penalty * share[t, c]",
            "feature_penalty / m + 0.0 * share[t, c]",
            "projected_classes:numbers",
        ),
        Mutation("a second message", "        self._was_sent = True\n", "", "projected_classes:refuses"),
    ],
    "algorithms/representation/general_flute.py": [
        Mutation(
            "one step from the sum over clients", "gradients(W, None,", "gradients(W, 1.0,", "class_algorithms:flute"
        ),
        Mutation(
            "one step without its penalty",
            "gradients(W, None, self.feature_penalty)",
            "gradients(W, None, 0.0)",
            "class_algorithms:flute",
        ),
        Mutation("the server climbs", "W = W - server *", "W = W + server *", "class_algorithms:flute"),
        Mutation(
            "the server's mean of NC",
            "W = W - server * nc_gradient(",
            "W = W - server / W.shape[1] * nc_gradient(",
            "class_algorithms:flute",
        ),
        Mutation("the sum of B", "return W, B.mean(axis=1)", "return W, B.sum(axis=1)", "class_algorithms:flute"),
        Mutation(
            "head steps at one client's B",
            "features = samples.project(B)",
            "features = samples.project(B[:, 0])",
            "class_algorithms:flute",
        ),
        Mutation("half the head penalty", "2.0 * self.head_penalty", "self.head_penalty", "class_algorithms:slope"),
        Mutation(
            "head steps without penalties",
            "W = self._step_heads(W, features.head_gradient(W), target, step)",
            "W = _stepped(W, features.head_gradient(W), step)",
            "class_algorithms:flute",
        ),
        Mutation(
            "heads of one's own",
            "standard_normal((1, start",
            "standard_normal((start.n_clients, start",
            "class_algorithms:flute",
        ),
    ],
    "algorithms/baselines/local_only.py": [
        Mutation(
            "the ridge is on biases",
            "np.zeros_like(theta[..., -1:])",
            "theta[..., -1:]",
            "algorithms/algorithms:classes",
        ),
    ],
    "algorithms/parts/models.py": [
        Mutation(
            "biases belong to a unit",
            "np.ones((*each.shape[:-1], 1))",
            "each[..., :1]",
            "algorithms/algorithms:classes",
        ),
    ],
    "simulation/class_metrics.py": [
        Mutation(
            "clients without a value count",
            "total / np.maximum(count, 1)",
            "total / values.shape[-1]",
            "class_metrics:loops",
        ),
        Mutation(
            "biases collapse, too", 'state.array("W")[..., :-1]', 'state.array("W")[..., 1:]', "class_metrics:loops"
        ),
        Mutation(
            "local collapse is global",
            "batch.holds, local=OF_HEADS[name])",
            "batch.holds)",
            "class_metrics:loops",
        ),
    ],
    "data/compressed.py": [
        Mutation("a degree less", "(m - np.arange(d + 1))", "(m - 1 - np.arange(d + 1))", "exact_law:chi_square"),
    ],
    "data/chain.py": [
        Mutation("a degree less", "columns - np.arange(", "columns - 1 - np.arange(", "exact_law:noise_beyond"),
        Mutation("k degrees more", "rank - columns - np.arange(", "rank - np.arange(", "exact_law:noise_beyond"),
    ],
    "data/projected/source.py": [
        Mutation("outer noise inside the span", "N - P @ (P.mT @ N)", "N", "exact_law:noise_beyond"),
    ],
    "algorithms/parts/heads.py": [
        Mutation(
            "clipped by the length of a",
            "np.linalg.norm(a, axis=-1) * np.linalg.norm(W, axis=-1)",
            "np.linalg.norm(a, axis=-1)",
            "algorithms/algorithms:loop",
        ),
        Mutation(
            "one ridge for all rounds",
            "value_at(self.ridge, batch.round,",
            "value_at(self.ridge, 1,",
            "step_size:ridge",
        ),
        Mutation(
            "new clients without the ridge",
            'features.fit(last_value(self.ridge, "ridge"))',
            "features.fit()",
            "simulation/new_clients",
        ),
        Mutation(
            "the sum is a mean", "1.0 if summed else None", "None", "algorithms/algorithms:loop algorithms/fedrep:sum"
        ),
        Mutation(
            "the sum of local steps",
            "1.0 if summed else 1.0 /",
            "1.0 /",
            "algorithms/algorithms:loop algorithms/fedrep:sum",
        ),
    ],
    "algorithms/representation/flute.py": [
        Mutation(
            "ratio of the steps",
            "self.server_step_size / (step_size * self.gradient_factor)",
            "self.server_step_size / step_size",
            "algorithms/flute:ratio",
        ),
    ],
    "algorithms/representation/fedrod.py": [
        Mutation(
            "balance is for numbers",
            "batch.balanced() if self.balanced and",
            "batch.balanced() if False and",
            "class_algorithms:fedrod",
        ),
        Mutation(
            "personal heads of the whole label",
            "batch.shifted(model.predictors(model.shared(state))).project",
            "batch.project",
            "fedrod",
        ),
        Mutation("new clients without the generic head", 'W=state.array("W") + heads.adapt', "W=heads.adapt", "fedrod"),
        Mutation("fine-tuning is the round's", "self._fitted(self.fine_tune,", "self._fitted(self.personal,", "fedrod"),
    ],
    "algorithms/parts/fine_tuning.py": [
        Mutation(
            "the common model twice", "return tuned - model.predictors(shared) if", "return tuned if", "fine_tuning"
        ),
        Mutation(
            "the algorithm's step size",
            "step_size if self.step_size is None else self.step_size",
            "step_size",
            "fine_tuning",
        ),
        Mutation("no model for new clients", 'arrays | {"shared": arrays["S"]}', "arrays", "fine_tuning"),
    ],
    "data/projected/features.py": [
        Mutation("messages of other counts", "/ self._counts[t, c])", "/ self._counts.mean())", "exact_law:differing"),
    ],
    "data/sources.py": [
        Mutation(
            "noise of the first clients",
            "noise *= self.truth.noise_levels(active)",
            "noise *= self.truth.noise_levels(np.arange(active.shape[1]))",
            "problems/base:own_noise",
        ),
        Mutation("padding is noise", "clear_padding(drawn, counts)", "pass", "sources"),
        Mutation(
            "counts of the first clients",
            "self._counts[active]",
            "self._counts[: active.shape[1]][None]",
            "sources",
        ),
    ],
    "algorithms/personal/ditto.py": [
        Mutation("no pull", "g + self.strength * (v - server)", "g", "algorithms/algorithms:loop"),
    ],
    "algorithms/personal/apfl.py": [
        Mutation(
            "the new mix in the same step",
            "own, local, a = own - eta * a * slope",
            "own, local, a = own - eta * changed * slope",
            "algorithms/algorithms:loop",
        ),
        Mutation(
            "the paper's order in the framework",
            'other = new if self.variant == "framework" else local',
            "other = local",
            "algorithms/algorithms:loop",
        ),
    ],
    "algorithms/personal/pfedme.py": [
        Mutation(
            "the local model is served",
            "S=model.predictors(personal)",
            "S=model.predictors(local)",
            "algorithms/algorithms:loop",
        ),
    ],
    "algorithms/personal/l2gd.py": [
        Mutation(
            "a coin per client",
            "rng.uniform(()) < self.mean_probability",
            "np.full(len(batch.active), True)",
            "personal_models:coin",
        ),
        Mutation("steps of equal length", "alpha / (1.0 - q) * model", "alpha * model", "algorithms/algorithms:loop"),
    ],
    "algorithms/personal/perfedavg.py": [
        Mutation(
            "one batch after a split",
            "batch.split(count, rest=True)",
            "(batch.split(count, rest=True)[0],) * count",
            "algorithms/algorithms:loop",
        ),
    ],
    "algorithms/personal/fedmtl.py": [
        Mutation("half the penalty", "2.0 * self.strength * np.eye(A", "self.strength * np.eye(A", "fedmtl"),
        Mutation("other clients are at 0", "(b - others).reshape", "b.reshape", "fedmtl"),
    ],
    "algorithms/one_round/estimators.py": [
        Mutation("a sample with itself", "1.0 / (m * (m - 1.0))", "0.0 * m", "estimators"),
        Mutation("singular vectors of one side", "product + product.mT", "product @ product.mT", "estimators:loop"),
    ],
    "algorithms/representation/altgdmin.py": [
        Mutation("the step of every round's averages", " and not state.norm.any():", ":", "algorithms/algorithms:loop"),
        Mutation(
            "the mean over samples",
            "representation_gradient(batch.counts)",
            "representation_gradient(1.0)",
            "algorithms/algorithms:loop",
        ),
    ],
    "algorithms/parts/overshooting.py": [
        Mutation("no curvature", "(4.0 * (1.0 - gain / promise))", "4.0", "outcomes:quadratic"),
        Mutation("a single step", "range(STEPS)", "range(1)", "outcomes:smaller"),
    ],
    "algorithms/representation/altmin.py": [
        Mutation("heads of participants only", 'new.array("W") @ R.mT', 'new.array("W")', "algorithms/algorithms:loop"),
        Mutation(
            "the mean over clients",
            "representation_gradient(W, 1.0)",
            "representation_gradient(W)",
            "algorithms/algorithms:loop",
        ),
    ],
    "algorithms/representation/anil.py": [
        Mutation(
            "gradients before the own step",
            "after.gradients(own)",
            "after.gradients(0 * own)",
            "algorithms/algorithms:loop",
        ),
    ],
    "algorithms/parts/meta.py": [
        Mutation(
            "the own step on B is lost", "composed(B, own) + offsets", "composed(B, own)", "algorithms/algorithms:loop"
        ),
        Mutation("of the head before its step", "np.vecdot(heads, w)", "np.vecdot(w, w)", "algorithms/algorithms:loop"),
        Mutation(
            "the slope on the first B", "np.vecdot(g, r)[..., None] * w\n", "0.0 * w\n", "algorithms/algorithms:loop"
        ),
        Mutation("half of the Hessian", " + summed_outer(g, v))", ")", "algorithms/algorithms:loop"),
    ],
    "algorithms/representation/tpgd.py": [
        Mutation(
            "a round too late",
            "batch.round > self.first_phase",
            "batch.round > self.first_phase + 1",
            "algorithms/algorithms:loop",
        ),
    ],
    "algorithms/one_round/empirical_risk.py": [
        Mutation(
            "the penalty once more",
            "weights / curvature)",
            "2.0 * weights / curvature)",
            "algorithms/empirical_risk:nuclear",
        ),
        Mutation("heads stay", "of_W - 0.5 * W @ difference", "0.0 * of_W", "algorithms/empirical_risk:both_factors"),
        Mutation("finished trials go on", "np.where(done, Theta, new)", "new", "algorithms/algorithms:trial"),
    ],
    "algorithms/initial/averages.py": [
        Mutation("all samples count", "np.abs(y) <= largest[trial]", "np.abs(y) >= 0.0", "algorithms/altmin:truncated"),
    ],
    "theory/local_updates.py": [
        Mutation(
            "one step more",
            'check_integer("local_steps", local_steps) - 1',
            'check_integer("local_steps", local_steps)',
            "local_updates",
        ),
        Mutation("the mean head is lost", "eta**2 * mean[", "0.0 * mean[", "local_updates"),
        Mutation("sines as tangents", "sizes / np.sqrt(1.0 + sizes**2)", "np.minimum(sizes, 1.0)", "local_updates"),
    ],
    "theory/spectral.py": [
        Mutation(
            "moments of Gaussian labels", "return 2.0, 12.0 / (n * m)", "return 2.0, 8.0 / (n * m)", "spectral:noise"
        ),
        Mutation("the averages' own samples", "(m + 3.0) * share", "(m + 2.0) * share", "spectral:noise"),
        Mutation(
            "no transition",
            "1.0 / (1.0 - np.where(kept[..., None], ratios, 0.0))",
            "1.0 + 0.0 * ratios",
            "spectral:transition",
        ),
    ],
    "prediction/personal.py": [
        Mutation(
            "the mix of the old model",
            "a * own + (1.0 - a) * other",
            "a * own + (1.0 - a) * theta",
            "prediction/personal:map",
        ),
        Mutation(
            "no client's own rate",
            "max(_rate(matrix[None]), _rate(by_own))",
            "_rate(matrix[None])",
            "prediction/personal:map",
        ),
    ],
    "algorithms/representation/lgfedavg.py": [
        Mutation("the server's step", "W + self.server_step_size * change", "W + change", "lgfedavg"),
        Mutation(
            "a rank for no initialisation",
            "return self.rank\n\n    @property",
            "return 0\n\n    @property",
            "lgfedavg:initialisation",
        ),
    ],
    "algorithms/averaging/base.py": [
        Mutation(
            "clients out of samples go on",
            "np.where(moves, model.trained",
            "np.where(moves | True, model.trained",
            "algorithms/algorithms:loop",
        ),
    ],
    "algorithms/averaging/scaffold.py": [
        Mutation(
            "the printed weights",
            "c + state.mean(new - controls, batch.active)",
            "c + self.average(batch, new - controls)",
            "algorithms/algorithms:loop",
        ),
        Mutation(
            "controls of one step",
            "change / (taken * self.step_in(batch))",
            "change / self.step_in(batch)",
            "algorithms/algorithms:loop",
        ),
    ],
    "algorithms/averaging/fedvarp.py": [
        Mutation("nothing of the others", "(news + state.mean(state.changes))", "news", "algorithms/algorithms:loop"),
    ],
    "algorithms/averaging/clusterfedvarp.py": [
        Mutation(
            "clusters that nobody was in forget",
            "np.where(count > 0, among @ change / np.maximum(count, 1.0), state.changes)",
            "among @ change / np.maximum(count, 1.0)",
            "algorithms/algorithms:loop",
        ),
    ],
    "algorithms/averaging/fedrolex.py": [
        Mutation("windows begin one later", "(round_ - 1)", "round_", "algorithms/algorithms:loop fedrolex"),
        Mutation("shares round down", "shares * width + ROUNDING", "shares * width", "algorithms/algorithms:loop"),
    ],
    "numerics/collapse.py": [
        Mutation(
            "the client's classes for all", "None, None] if local else", "None, None] if True else", "numerics/collapse"
        ),
        Mutation("only D's direction", "        D -= X\n", "", "numerics/collapse:gradient"),
        Mutation(
            "rounding has a direction", "norm <= ROUNDING", "norm < 0.0 * ROUNDING", "numerics/collapse:no_gradient"
        ),
        Mutation(
            "a product of small heads",
            "scale = np.abs(_flat(H))",
            "scale = 1.0 + 0.0 * np.abs(_flat(H))",
            "numerics/collapse:scale",
        ),
    ],
    "theory/collapse.py": [
        Mutation("every dimension counts", "(last if dim >= per_client else 0.0)", "last", "theory/collapse:least"),
        Mutation("penalties as one client's", "/ math.sqrt(c)\n", "/ c\n", "theory/collapse:closed_form"),
    ],
    "theory/partial_participation.py": [
        Mutation("participants with replacement", "(n - p) / (p * (n - 1))", "1.0 / p", "partial_participation"),
        Mutation(
            "additive noise alone",
            "driven + phi * (away @ S @ away.mT).mean(axis=0)",
            "driven",
            "partial_participation",
        ),
    ],
    "theory/mean_square.py": [
        Mutation(
            "participants with replacement",
            "(participants * (n - 1)) if n > 1",
            "(participants * n) if n > 1",
            "mean_square",
        ),
        Mutation(
            "clients' kicks are independent of their changes",
            "+ a * self._phi * (kick_with_change - K @ state_with_change)",
            "",
            "mean_square",
        ),
        Mutation("the mean alone", "+ self._phi * squares", "", "mean_square"),
        Mutation("memories in any unit", "return float(np.abs(A).max())", "return 1.0", "mean_square:units"),
    ],
    "theory/drawn_clients.py": [
        Mutation(
            "empty clusters are independent",
            "(none[:, None] - both)",
            "(none[:, None] * (1.0 - none))",
            "mean_square:takes_part",
        ),
    ],
    "prediction/averaging.py": [
        Mutation(
            "a window among whole models",
            "np.min(share) < 1",
            "np.max(share) < 1",
            "prediction/averaging:known",
        ),
        Mutation(
            "a search from the least eigenvalue",
            "np.linalg.eigvalsh(self.A).max()",
            "np.linalg.eigvalsh(self.A).min()",
            "prediction/averaging:few_samples",
        ),
        Mutation("floors beyond the edge", "if rate >= 1.0:", "if rate >= 1e9:", "prediction/averaging:few_samples"),
        Mutation(
            "every direction is seen",
            "np.eye(len(A[0])) if isinstance(algorithm, FedRolex) else seen",
            "np.eye(len(A[0])) if True else seen",
            "prediction/averaging:no_sample",
        ),
    ],
    "theory/fedrolex.py": [
        Mutation("every direction is seen", "sizes > SINGULAR * sizes.max()", "sizes > -1.0", "fedrolex:no_window"),
        Mutation("zeros count", 'if aggregation == "published":', "if False:", "fedrolex"),
    ],
    "algorithms/representation/shortcut.py": [
        Mutation(
            "ridge of a mixed shortcut",
            "self.ridge_in(batch) / self._scales[1] ** 2",
            "self.ridge_in(batch)",
            "algorithms/shortcut:gradient",
        ),
    ],
    "numerics/quantiles.py": [
        Mutation("a diverged trial is the best", "values), np.inf", "values), -np.inf", "intervals:median results"),
    ],
    "data/labels.py": [
        Mutation("one sample is summed in another order", "if count == 1:", "if False:", "data/samples:one_sample"),
    ],
    "tables/summary.py": [
        Mutation("touching intervals part", "entry.high < one.low if", "entry.low < one.high if", "summary:bold"),
        Mutation("diverged trials are the best", "[statistic](sign * np", "[statistic](np", "summary:diverged"),
        Mutation("other columns compete", "if column == key[1] and", "if", "summary:bold"),
        Mutation("a power for each end", "value / 10.0**shared", "value", "summary:same_numbers"),
    ],
    "tables/escaping.py": [
        Mutation("powers are raised", r'"^": r"\textasciicircum{}"', '"^": "^"', "escaping:latex"),
        Mutation("a star is an argument", '.startswith(("[", "*"))', '.startswith("[")', "escaping:latex"),
        Mutation("emphasis between letters", "(?<![^\\W_])_|", "", "escaping:markdown"),
    ],
    "tables/labeled_array.py": [
        Mutation(
            "values stay the caller's",
            'np.array(check_unmasked(name, values), order="C")',
            "np.asarray(check_unmasked(name, values))",
            "tables/table:copied labeled_array",
        ),
        Mutation("copies can be written", "        self._lock()  # pickle", "        # pickle", "labeled_array"),
    ],
    "tables/table.py": [
        Mutation(
            "arrays stay the caller's",
            "kept = np.array(value)",
            "kept = np.asarray(value)",
            "tables/table:copied labeled_array",
        ),
        Mutation("a column is the table's", "found[0].copy() if", "found[0] if", "tables/table:read_from"),
        Mutation("equal cells share a row", "[dict(row) for table in", "[row for table in", "tables/table:joined"),
    ],
    "search/parts.py": [
        Mutation("parts share a buffer", "Table([row]).rows[0])", "row)", "scheduler:part"),
    ],
    "plotting/smallest.py": [
        Mutation("bounds on the wrong side", '("above", "^", low)', '("above", "^", high)', "smallest"),
        Mutation("x in the order of the table", "values[order] for name", "values for name", "smallest"),
    ],
    "reproduction/citation.py": [
        Mutation("the year is a date", 'fields["year"][:4]', 'fields["year"]', "citation:authors"),
    ],
    "data/splits.py": [
        Mutation(
            "ties in order",
            "np.lexsort((rng.random(len(values)), values))",
            "np.argsort(values, kind='stable')",
            "splits",
        ),
        Mutation(
            "weights are ignored", "np.cumsum(weights)", "np.cumsum(np.full(n, weights.mean()))", "splits:rounded_ends"
        ),
    ],
    "statistics/intervals.py": [
        Mutation("a diverged trial is the best", "nan=HUGE", "nan=0.0", "gains"),
        Mutation(
            "a level reached is not below it", "curves <= check_number", "curves < check_number", "intervals:first"
        ),
        Mutation("one end for all the rest", ">= (1 + confidence) / 2)", ">= confidence)", "intervals:quantile"),
        Mutation("a rank too high", "ordered[short[-1]]", "ordered[short[-1] + 1]", "intervals:quantile"),
        Mutation("the largest trial is an end", "if beyond.size else math.inf", "if True else 0", "intervals:quantile"),
        Mutation(
            "points are clusters", "float(sizes.sum()) / size - 1.0", "float(sizes.sum()) - 1.0", "intervals:clusters"
        ),
        Mutation(
            "no pseudo-clusters",
            "[size, 0.0]), np.append(sizes, [size, size])",
            "[0.0, 0.0]), np.append(sizes, [0.0, 0.0])",
            "intervals:agree",
        ),
    ],
    "theory/fedrep/rounds/round_moments.py": [
        Mutation("one pair of indices twice", '"tabbd->tadb", "tabca->tbca")', '"tabbd->tadb")', "round_moments:sums"),
        Mutation(
            "half the noise of the tangents",
            "(other * (by[:, 2] + noise[:, 2]))",
            "(other * by[:, 2])",
            "round_moments:mean_map",
        ),
        Mutation(
            "one participant's variance of heads",
            "(f * both, 1)",
            "(f * drawn, 1)",
            "round_moments:moments_are_the_sums",
        ),
        Mutation("clients of the first block alone", "len(tau) / n * part", "part", "round_moments:blocks_of_clients"),
    ],
    "cells/smallest_size.py": [
        Mutation("half of the budget", "16 * self.trials", "8 * self.trials", "smallest_size:budget"),
        Mutation(
            "a few truths for all", "predicted_of = int(row", "predicted_of = 3 or int(row", "smallest_size:truths"
        ),
    ],
    "statistics/crossings.py": [
        Mutation("a tie with the level falls short", "np.sum(margins <= 0)", "np.sum(margins < 0)", "crossings:ties"),
        Mutation("sizes tried again and again", "if middle not in self.margins:", "if True:", "crossings:covers"),
        Mutation("no mistake at any look", "/ (2 * looks)", "/ 0.04", "crossings:covers crossings:spent"),
        Mutation("one look", "/ (2 * looks)", "/ 2", "crossings:looks"),
        Mutation("both mistakes as one", "/ (2 * looks)", "/ looks", "crossings:looks"),
        Mutation("predictions sought by doubling", "if self.near else 1.0", "if False else 1.0", "crossings:near"),
        Mutation(
            "known between far margins", "size=REPLICATES)\n    return", "size=1)\n    return", "crossings:between"
        ),
    ],
    "statistics/fits.py": [
        Mutation("censored on the other side", "out = -beyond *", "out = beyond *", "fits:censored"),
        Mutation("fixed factors left out", "base += logs", "base += 0 * logs", "fits:quotients"),
        Mutation(
            "half the curvature",
            "(2 * float(free[-1]), 2 * low, 2 * high)",
            "(float(free[-1]), low, high)",
            "fits:change",
        ),
        Mutation(
            "a degree more",
            "uncensored.sum()) - design.shape[1]\n",
            "uncensored.sum()) - design.shape[1] + 1\n",
            "fits:normal_equations",
        ),
        Mutation("rounding bends", "zip(low - rounding, high + rounding", "zip(low, high", "fits:rounding"),
        Mutation("spreads of single points", "np.sum(covariance**2)", "np.sum(np.diag(covariance)) ** 2", "fits:bent"),
        Mutation(
            "the scatter of all coefficients",
            "replicates.shape[1]] - design @ replicates)",
            "replicates.shape[1]])",
            "fits:bent fits:offset",
        ),
    ],
    "statistics/gains.py": [
        Mutation("a tie of the larger", "tie * np.minimum(mine", "tie * np.maximum(mine", "gains:ends"),
    ],
    "report/compare.py": [
        Mutation("an end is outside", "estimate < claim.low", "estimate <= claim.low", "report/compare:estimate"),
        Mutation(
            "claims counted from another number",
            "seen.get(key, -1)",
            "seen.get(key, 0)",
            "report/compare",
            "the numbers of both runs are shifted alike, and are compared with each other alone",
        ),
    ],
    "report/cards.py": [
        Mutation(
            "most settings decide the outcome",
            "        if kinds[AGAINST]:",
            "        if kinds[AGAINST] > kinds[FOR]:",
            "cards:outcome",
        ),
        Mutation("a thousand in powers of ten", "if 1000 <= abs", "if 1000 < abs", "cards:thousands"),
    ],
    "prediction/law.py": [
        Mutation(
            "the next law predicts another kind of run", "if law.or_next:", "if True:", "prediction/dispatch:missing"
        ),
        Mutation(
            "a law whose formulas fail ends the search", "if law.or_next:", "if False:", "prediction/dispatch:missing"
        ),
    ],
    "prediction/dispatch.py": [
        Mutation(
            "a class with its own step is predicted",
            "is not getattr(base, name, None)",
            "is None",
            "prediction/dispatch:subclass",
        ),
    ],
    "data/given_classes.py": [
        Mutation(
            "rows without their label", "rows * (sizes.dim + 2)", "rows * (sizes.dim + 1)", "given_classes:memory"
        ),
    ],
    "statistics/findings.py": [
        Mutation(
            "the best trial decides an identity", "values[has_value].max()", "values[has_value].min()", "findings"
        ),
    ],
    "simulation/participation.py": [
        Mutation("participants of the first trials", "given[list(trials)]", "given[: len(trials)]", "participation"),
    ],
    "simulation/start.py": [
        Mutation(
            "starts of the first trials",
            "[list(self._trials)]",
            "[: len(self._trials)]",
            "initial simulation/run simulation/start",
        ),
    ],
    "simulation/job.py": [
        Mutation("no memory for the batch at the end", "if job.algorithm.finishes:", "if False:", "job"),
    ],
    "simulation/engines.py": [
        Mutation("a block of one sample", "float(setting.samples) * (sizes", "1.0 * (sizes", "sizes"),
        Mutation(
            "other arrays in the chain's frame",
            "return _other_coordinates(setting)",
            'return ""',
            "engines:other_arrays",
        ),
        Mutation("the chain a dimension short", "if d < rank + 2 * k", "if d <= rank + 2 * k", "chain:plus_2k"),
        Mutation(
            "noise in the chain's frame",
            "if requires == Requires.COORDINATES",
            "if False",
            "algorithms/private_fedrep:cannot",
        ),
        Mutation(
            "rows of pseudo-samples",
            "requires > Requires.QUADRATIC",
            "requires > Requires.ROWS",
            "engines:no_single engines:cannot",
        ),
    ],
    "simulation/loop.py": [
        Mutation(
            "states checked in the first round alone",
            "or not has_form_of(returned, state)",
            "or not isinstance(returned, State)",
            "checked:invalid_state",
        ),
        Mutation("states in a buffer of the algorithm", "if self._may_keep:", "if False:", "contract:used_again"),
        Mutation("scale of the first trials", "scale[list(trials)]", "scale[: len(trials)]", "loop"),
        Mutation("one finite array is enough", "fine & within", "fine | within", "loop_iterate loop"),
        Mutation(
            "singular heads of diverged trials",
            "(chunk.alive & batch.singular)",
            "(batch.singular)",
            "loop",
            "a trial that is not alive has the status DIVERGED already, which the next line leaves alone",
        ),
    ],
    "simulation/metrics.py": [
        Mutation(
            "noise that is not squared",
            "0.5 * np.square(truth.noise_std)",
            "0.5 * np.abs(truth.noise_std)",
            "metrics_values",
        ),
        Mutation(
            "a truncation of every rank",
            "run.truth_rank is None or run.truth_rank > run.columns",
            "run.truth_rank is None or run.truth_rank >= run.columns",
            "metrics:plan",
        ),
        Mutation("losses by default", "(only_errors and METRICS[name].loss)", "False", "metrics:plan"),
    ],
    "_names.py": [
        Mutation("any accuracy", '.rpartition("_")[2] == "accuracy"', '.endswith("accuracy")', "metrics:metrics_say"),
    ],
    "simulation/new_clients.py": [
        Mutation(
            "states of the first trials",
            "slice(trials.start, trials.stop)",
            "slice(len(trials))",
            "simulation/new_clients",
        ),
    ],
    "theory/fedrep/rounds/gradient_round.py": [
        Mutation(
            "half the noise along what is there",
            "rows += 4.0 * (packing",
            "rows += 2.0 * (packing",
            "gradient_round:single_messages gradient_heads:spread",
        ),
        Mutation(
            "half the turn by participants",
            "+ 2.0 * packing.outer(left @ tilt",
            "+ packing.outer(left @ tilt",
            "gradient_round:single_messages gradient_heads:spread",
        ),
        Mutation(
            "noise along a client's own direction",
            "- absent @ absent.T / count",
            "",
            "gradient_round:single_messages gradient_heads:spread",
        ),
        Mutation(
            "participants with replacement",
            "if p > 1:",
            "if False:",
            "gradient_round:single_messages gradient_heads:spread",
        ),
        Mutation(
            "tangents to first order",
            'lost = eta * pull + np.einsum("ijjl->il", both[0, :, :, 1])',
            "lost = eta * pull",
            "gradient_heads:median",
        ),
    ],
    "theory/fedrep/arguments.py": [
        Mutation(
            "weights without squares", "self.weights**2 *", "self.weights *", "state_evolution:clients_that_differ"
        ),
        Mutation("n - 1 as n", "(p * (n - 1))", "(p * n)", "state_evolution:loop state_evolution:explicit"),
    ],
    "theory/fedrep/rounds/state_evolution.py": [
        Mutation("m - k + 1 as m - k", "(m - k + 1) /", "(m - k) /", "state_evolution:loop state_evolution:explicit"),
        Mutation(
            "client sampling without squares",
            "clients.share * pull**2",
            "clients.share * pull",
            "state_evolution:clients_that_differ",
        ),
        Mutation(
            "one square of the noise",
            "gain / nu * variance**2",
            "gain / nu * variance",
            "state_evolution:clients_that_differ",
        ),
    ],
    "theory/fedrep/rounds/under_parameterized.py": [
        Mutation(
            "rows below the top subspace are not pulled",
            "middle = kept + eta * c * (weights @ rows.values[k:]) / max(weights.sum(), TINY) * eye",
            "middle = kept",
            "under_parameterized:first_round",
        ),
        Mutation(
            "a floor at a factor of -1",
            "factors.min() <= -1.0",
            "factors.min() < -1.0",
            "under_parameterized:minus_one",
        ),
        Mutation(
            "any rank above k",
            "<= RANK_TOLERANCE * rows.values[0]",
            "< 0.0",
            "under_parameterized:rank_k_without_noise",
        ),
    ],
    "theory/fedrep/rounds/second_order.py": [
        Mutation(
            "each kick a round late",
            "round_log_variance=kick[..., 1:]",
            "round_log_variance=kick[..., :-1]",
            "second_order:kick",
        ),
        Mutation("tangents in their own unit", "largest < LINEAR**2", "largest < 0.0", "second_order:convergence"),
        Mutation(
            "a floor before it is reached", "STATIONARY = (64, 256, 1024)", "STATIONARY = (4,)", "second_order:floor"
        ),
    ],
    "algorithms/representation/private_fedrep.py": [
        Mutation(
            "noise without the step size",
            "step_size * self.message_noise_std",
            "self.message_noise_std",
            "algorithms/algorithms:loop",
        ),
    ],
    "algorithms/representation/compressed_fedrep.py": [
        Mutation(
            "kept entries are not enlarged",
            "< self.kept_share) / self.kept_share",
            "< self.kept_share)",
            "algorithms/algorithms:loop algorithms/compressed_fedrep",
        ),
        Mutation(
            "quantised to the next lower level",
            "1.0) + u)",
            "1.0))",
            "algorithms/algorithms:loop algorithms/compressed_fedrep",
        ),
    ],
    "theory/privacy.py": [
        Mutation(
            "rounds add up like losses",
            "sensitivity * math.sqrt(rounds)",
            "sensitivity * rounds",
            "privacy:rounds",
        ),
        Mutation(
            "the noise of the other tail",
            "special.log_ndtr(-0.5 * a - epsilon / a)",
            "special.log_ndtr(-0.5 * a + epsilon / a)",
            "privacy:definition",
        ),
    ],
    "theory/fedrep/near_truth/any_heads.py": [
        Mutation("all of the error across span(B*)", "(d - k + 2.0) / (d + 2.0) * mean", "mean", "compression:round"),
        Mutation(
            "the message of a client is its noise alone",
            "moments.fourth[1] + moments.fourth[4]",
            "moments.fourth[1]",
            "compression:round",
        ),
        Mutation(
            "errors along the heads",
            "return np.asarray(clients.compression *",
            "mean = np.eye(len(mean))\n    return np.asarray(clients.compression *",
            "compression:round",
        ),
        Mutation("noise in d rows", "drive = rows * (", "drive = clients.dim * (", "message_noise:closed"),
        Mutation(
            "the most stable direction decides",
            "0.5 * (whitened + whitened.T))[-1])",
            "0.5 * (whitened + whitened.T))[0])",
            "any_heads",
        ),
    ],
    "theory/fedrep/near_truth/schedule.py": [
        Mutation("one cross term of two", "(m - k + 1 + 2 * (d - k))", "(m - k + 1 + (d - k))", "schedule:logarithm"),
    ],
    "theory/fedrep/near_truth/weights.py": [
        Mutation(
            "heads without cross terms",
            "(m - k + 1 + 2 * rows)",
            "(m - k + 1)",
            "theory/fedrep/near_truth/weights:simple",
        ),
        Mutation(
            "participants are everybody", "(rows + 1 + chosen)", "(rows + 1)", "theory/fedrep/near_truth/weights:simple"
        ),
        Mutation(
            "the pull once",
            "symmetric(P @ V @ inverse)",
            "symmetric(P @ V)",
            "theory/fedrep/near_truth/weights:smaller_limit",
        ),
    ],
    "theory/fedrep/near_truth/refitted.py": [
        Mutation(
            "weights without squares",
            "clients.weights**2 *",
            "clients.weights *",
            "theory/fedrep/near_truth/weights:information",
        ),
    ],
    "theory/fedrep/near_truth/covariances.py": [
        Mutation("a same batch at full speed", "-(1.0 - k / m) * (cov", "-(1.0 - 0.0 / m) * (cov", "covariances:draws"),
        Mutation(
            "one degree of freedom too many",
            "(missed + sigma2) / (m - k - 1)",
            "(missed + sigma2) / (m - k)",
            "covariances",
        ),
        Mutation(
            "covariance outside, not given inside",
            "(covariances - A @",
            "(covariances - 0.0 * A @",
            "covariances:rates",
        ),
        Mutation(
            "a bias that does not move the rate",
            "J = J + check_noise_std(truth.noise_std) ** 2",
            "J = J + 0.0 * check_noise_std(truth.noise_std) ** 2",
            "covariances:rates",
        ),
    ],
    "theory/fedrep/fixed_samples/similar.py": [
        Mutation(
            "parts outside that are only label noise",
            "(m - k + 1) * rho2 + (d - k)",
            "0.0 * rho2 + (d - k)",
            "theory/fedrep/fixed_samples/similar",
        ),
        Mutation(
            "no parts outside in the Hessian",
            "rho2.mean(axis=-1)[..., None, None] / (d - k)",
            "0.0 / (d - k)",
            "theory/fedrep/fixed_samples/similar",
        ),
        Mutation(
            "a client that does not move B towards itself",
            "1.0 - 2.0 * own",
            "1.0 - 0.0 * own",
            "theory/fedrep/fixed_samples/similar",
        ),
    ],
    "theory/mixing.py": [
        Mutation(
            "coins of the other side",
            "(1.0 - q) * after + q * both",
            "q * after + (1.0 - q) * both",
            "mixing:l2gd",
        ),
        Mutation("only the pull fluctuates", "(1.0 - q) * outer(r0) + q * outer(r1)", "q * outer(r1)", "mixing:l2gd"),
        Mutation("models that are not pulled", "(b + strength * centre)", "(b + 0.0 * centre)", "mixing:l2gd"),
    ],
    "theory/fedrep/fixed_samples/cavity.py": [
        Mutation(
            "heads of least squares",
            "noise[:, None, None] * root.T, -inside",
            "noise[:, None, None] * root.T, -0.0 * inside",
            "minimum:minimum cavity:total_least",
        ),
        Mutation(
            "an overlap without its noise",
            "np.vecdot(self.heads @ C, self.heads) + self.variance)\n        G",
            "0.0 * np.vecdot(self.heads @ C, self.heads) + self.variance)\n        G",
            "cavity:equations",
        ),
        Mutation(
            "a Hessian without narrow gaps",
            "own = self.spare - 1 + np.square(ratios)",
            "own = self.spare - 1 + 0.0 * np.square(ratios)",
            "cavity:replicon",
        ),
        Mutation(
            "a radius without mixed terms",
            "mixed = ratios * (1.0 + ratios)",
            "mixed = ratios * ratios",
            "cavity:replicon",
        ),
    ],
    "theory/flute/low_rank.py": [
        Mutation(
            "modes of both signs alike",
            "slow, fast = step_size * (top - rest)",
            "slow, fast = step_size * (top + rest)",
            "fresh_samples:floor",
        ),
        Mutation(
            "the block falls half as fast",
            "inner = step_size * (top + top.mT)",
            "inner = step_size * top + 0.0 * top.mT",
            "fresh_samples:floor",
        ),
        Mutation("a step too small to count", "alone / (2.0 - alone)", "alone / 2.0", "fresh_samples:floor"),
        Mutation(
            "a gap of the values", "* top / (top - following)", "* (top - following) / top", "fresh_samples:range"
        ),
    ],
    "theory/flute/mean_square.py": [
        Mutation(
            "a client's own direction left out",
            "second += np.trace",
            "second = np.trace",
            "fresh_samples:second_moments",
        ),
        Mutation(
            "signs of the modes",
            "values[p] - sign * values[q]",
            "values[p] + sign * values[q]",
            "fresh_samples:modes_are",
        ),
        Mutation(
            "weights of the decay",
            "h, f = step_size * self.weight",
            "h, f = step_size * self.decay",
            "fresh_samples:feedback",
        ),
    ],
    "theory/flute/coordinates.py": [
        Mutation(
            "a fifth of the additive term", "step_size**2 * top**3", "0.2 * step_size**2 * top**3", "coordinates:growth"
        ),
        Mutation(
            "half of the noise",
            "4.0 * np.sqrt(top) * spectral_norm(remainder[..., :k, :])",
            "2.0 * np.sqrt(top) * spectral_norm(remainder[..., :k, :])",
            "coordinates:growth",
        ),
    ],
    "theory/flute/trace.py": [
        Mutation(
            "a mean of norms as their root mean square",
            "np.sqrt(squared.mean(axis=-1))",
            "np.sqrt(squared).mean(axis=-1)",
            "theory/flute/trace:records",
        ),
    ],
    "theory/flute/judges.py": [
        Mutation("the value k + 1 as k", "rate = 0.5 * (kth - gap)", "rate = 0.5 * kth", "theory/flute/judges:rest"),
        Mutation(
            "the best trial decides a hypothesis", "np.min(flute_step", "np.max(flute_step", "theory/flute/judges:step"
        ),
        Mutation("the best round decides a bound", "0.0).max(axis=1)", "0.0).min(axis=1)", "theory/flute/trace:failed"),
    ],
    "theory/new_clients.py": [
        Mutation("m - k - 1 as m - k", "n_samples - rank - 1", "n_samples - rank", "theory/new_clients"),
    ],
    "simulation/run.py": [
        Mutation("threads are not stopped", "stopped.set()", "None", "threads:stops"),
        Mutation(
            "identical trials in silence",
            "or data.n_trials is not None or",
            "or True or",
            "simulation/run:identical",
        ),
    ],
    "search/tuning.py": [
        Mutation(
            "tuned on the test samples", "if validation_share else data", "if False else data", "tuning:holds_out"
        ),
        Mutation("no warning of one set for both", "and validation_share is None", "and False", "tuning:said_to_be"),
        Mutation(
            "tuning on the run's own trials",
            "participation=participation,\n        trials=trials,\n        seed=tuning_seed(seed),",
            "participation=participation,\n        trials=trials,\n        seed=seed,",
            "tuning",
        ),
        Mutation("the tuning in a cell warns", "[] if is_in_cell() else notes", "notes", "cells/run:said_once"),
    ],
    "search/selection.py": [
        Mutation("a diverged trial is the best", "values), np.inf", "values), -np.inf", "selection"),
    ],
    "search/race.py": [
        Mutation(
            "a race that ends with a tie", "if last <= limit:", "if last < limit / (1 + self.margin):", "race:run_to"
        ),
        Mutation("a setting that diverges later wins", "score > last or has_diverged", "score > last", "race:run_to"),
        Mutation(
            "an unstable setting wins", "without_unstable(values, status)", "values", "race:unstable race:complete_ones"
        ),
    ],
    "search/grid_search.py": [
        Mutation("scores beyond the stop", "curve[count:] = np.nan", "pass", "race:run_to"),
        Mutation("shown as chosen", '"chosen" if place == self.best', '"chosen" if place != self.best', "html:tuning"),
        Mutation("settings mixed up", "values[:, place]", "values[:, 0]", "cells/run:together"),
        Mutation(
            "a function of some trials",
            "count = 1 if of_results(self.metric) else ",
            "count = ",
            "cells/run:bit_for_bit",
        ),
    ],
    "system/description.py": [
        Mutation(
            "floats to fifteen digits", '{"float": value.hex()}', '{"float": f"{value:.15g}"}', "description:texts"
        ),
        Mutation(
            "sets in their order",
            "sorted((within(part) for part in value), key=text_of)",
            "[within(part) for part in value]",
            "description:one_text",
        ),
        Mutation("names that mean another", "found is not value", "found is None", "description:told_from_others"),
        Mutation("a class has its module", 'return f"linfed.{name}" if', "return name if", "description:every_machine"),
        Mutation("files run any class", "if cls is None or not _is_linfed(cls):", "if cls is None:", "archive:runs_no"),
    ],
    "_sources.py": [
        Mutation(
            "modules imported before", "for _name, _module in list(sys.modules.items())", "for _ in ()", "code_key:"
        ),
        Mutation(
            "reloaded modules", "if spec is not None", "if spec is not None and target is None", "code_key:changed"
        ),
    ],
    "sweeps/code_key.py": [
        Mutation(
            "all shipped experiments count for each cell",
            "(SHIPPED, ",
            "(",
            "reproduction/experiments:ones_own code_key:own_code",
        ),
        Mutation("linfed's own code left out", "*_lines(_own_files()), ", "", "code_key:linfeds_own"),
        Mutation("the cell's own code left out", ", *_lines(files)]", "]", "code_key:edits_that_count"),
        Mutation("packages above a module", '{file.module.rpartition(".")[0], ', "{", "code_key:edits_that_count"),
        Mutation(
            "binaries of the user", "Code(hashlib.sha256(content).hexdigest())", 'Code("")', "code_key:without_source"
        ),
        Mutation("names that are used", "_defined(one) & used for one", "() for one", "code_key:an_experiment"),
        Mutation("old code in a new file's name", "if loaded != content and", "if False and", "code_key:changed"),
        Mutation("replaced methods", "if module not in counted and", "if False and", "code_key:replaced"),
    ],
    "sweeps/store.py": [
        Mutation("torn files are believed", "!= first.removeprefix(MAGIC):", "== b'':", "store:set_aside"),
        Mutation("renamed files are believed", "if text != key.text or ", "if False and ", "store:set_aside"),
        Mutation("the newest of other code", "return -(self.folder", "return (self.folder", "store:stale"),
        Mutation("a file that tries the folder stays", "        probe.unlink()\n", "", "store:another_process"),
    ],
    "sweeps/progress.py": [
        Mutation("infinite costs", "0 < cost < math.inf", "0 < cost", "progress"),
    ],
    "reproduction/record.py": [
        Mutation(
            "a verdict is believed", 'if written.get("verdict") != claim', "if None is claim", "record:contradicts"
        ),
        Mutation("infinite numbers are NaN", "return float(value)\n", "return math.nan\n", "record:comes_back"),
        Mutation("halves of pairs are let in", "HALF_PAIR.search(value)", "False", "record:odd_record"),
    ],
    "reproduction/committed.py": [
        Mutation("claims that are gone are not told", "{**expected, **found}", "found", "committed:listed"),
        Mutation(
            "no setting but the number of rows is compared",
            "committed[key].keys() & settings[key].keys()",
            '("rows",)',
            "committed:other_settings",
        ),
    ],
    "sweeps/executors.py": [
        Mutation("cells of a worker that died are lost", "lost.extend(running.values())", "pass", "executors:dies"),
        Mutation("any number pending", "len(running) < pending and", "", "executors:pending"),
        Mutation(
            "whoever dies first ends the sweep",
            "_alone(workers, partial(_receive, call))",
            "raise",
            "executors:dies_twice",
        ),
    ],
    "sweeps/scheduler.py": [
        Mutation(
            "a shard sets the others' cells aside",
            "self.keys[index] for index in mine]",
            "self.keys[index] for index in range(len(self.keys))]",
            "store:recompute store_states",
        ),
        Mutation("all shards run the same", "[number - 1 :: count]", "[::count]", "store:merge"),
        Mutation(
            "any number of BLAS threads",
            "in_cell(one_by_one), one_blas_thread():",
            "in_cell(one_by_one):",
            "executors:blas",
        ),
        Mutation(
            "a failed cell's parts go on",
            "for task in self.ready if task.index != index",
            "for task in self.ready",
            "scheduler:of_no_use",
        ),
        Mutation(
            "parts are files of others",
            "keys = [key.part_of(self.keys[index]) for key in keys]",
            "pass",
            "scheduler:belong_to_their_cell",
        ),
        Mutation(
            "threads share answers",
            "if threading.current_thread() is not thread",
            "if False",
            "scheduler:run_their_parts",
        ),
    ],
    "tables/export.py": [
        Mutation("survivors in silence", "if along:\n        _warn", "if not along:\n        _warn", "tables/export"),
        Mutation("words are not repeated", 'v.dtype.kind in "bU"', 'v.dtype.kind in ""', "tables/export"),
        Mutation(
            "NaN within tuples differs",
            "all(map(same, first, second))",
            "first == second",
            "tables/table:nan table_properties",
        ),
        Mutation("two axes write one file", "if target in targets:", "if False:", "tables/export:two_axes"),
    ],
    "cells/run.py": [
        Mutation(
            "every part has the first trials",
            "range(self.part_first, self.part_last)",
            "range(self.part_last - self.part_first)",
            "cells/run:parts",
        ),
    ],
    "system/files.py": [
        Mutation("headers are believed", "if expected_size != size or", "if expected_size < size or", "sizes"),
        Mutation(
            "written in place",
            'with temporary.open("wb") as file:\n            yield file\n        os.replace(temporary, path)',
            'with path.open("wb") as file:\n            yield file',
            "faults:twenty",
        ),
    ],
}


def copy_of(source: Path, target: Path) -> Path:
    """Copy what the tests need, with what Python has compiled of it."""
    target.mkdir()
    for name in COPIED:
        (shutil.copytree if (source / name).is_dir() else shutil.copy2)(source / name, target / name)
    return target


def mutated(root: Path, file: str, mutation: Mutation) -> str:
    """Return the text of a file with a mistake in it, or exit where there is no telling where to make it."""
    path = root / "linfed" / file
    text = path.read_text() if path.exists() else ""
    if text.count(mutation.old) != 1:
        sys.exit(
            f"linfed/{file}: {mutation.name}: the code has moved: {mutation.old!r} occurs {text.count(mutation.old)} "
            "times, expected once"
        )
    return text.replace(mutation.old, mutation.new)


def first_failure(root: Path, tests: str, timeout: float) -> str:
    """Run tests in a copy; return the first that fails, else the last line of a pytest that failed, empty if none."""
    module, _, word = tests.partition(":")
    folder, _, name = module.rpartition("/")
    file = next((root / "tests" / folder).rglob(f"test_{name}.py"))
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "--all", "-x", "-q", "--tb=no", "-rfE", str(file), "-k", word],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root), "OPENBLAS_NUM_THREADS": "1", "MPLBACKEND": "Agg"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        told = process.communicate(timeout=timeout)[0].strip()
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # with the worker processes of its tests
        process.communicate()
        return f"timeout: {tests} had not ended after {timeout:g} s"
    if process.returncode == 0:
        return ""
    failed = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", told, re.MULTILINE)
    return failed[1] if failed else told.rpartition("\n")[2]


def killer(base: Path, file: str, mutation: Mutation, timeout: float) -> tuple[str, float]:
    """Return what kills a mutation, in a copy of its own, empty if nothing does; and the seconds it took."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=base.parent) as folder:
        root = copy_of(base, Path(folder) / "copy")
        (root / "linfed" / file).write_text(mutated(base, file, mutation))
        found = (first_failure(root, tests, timeout) for tests in mutation.tests.split())
        return next(filter(None, found), ""), time.perf_counter() - start


def outcome(mutation: Mutation, killed_by: str) -> str:
    """Return what became of a mutation in words."""
    if killed_by:
        return f"killed by {killed_by}" + (", though marked equivalent" if mutation.equivalent else "")
    return f"survived, equivalent: {mutation.equivalent}" if mutation.equivalent else "SURVIVED"


def survivors(chosen: list[tuple[str, Mutation]], timeout: float, folder: Path, pool: ThreadPoolExecutor) -> int:
    """Try mutations, and print a line on each; return how many survive that should not."""
    base = copy_of(ROOT, folder / "base")
    for file, one in chosen:
        mutated(base, file, one)
    tests = sorted({test for _, one in chosen for test in one.tests.split()})
    for test, failed in zip(tests, pool.map(lambda test: first_failure(base, test, timeout), tests), strict=True):
        if failed:
            sys.exit(f"{test} without any mutation: {failed}")
    survived = 0
    found = pool.map(lambda where: killer(base, *where, timeout), chosen)
    for (file, one), (killed_by, seconds) in zip(chosen, found, strict=True):
        print(f"{seconds:6.1f} s  linfed/{file}: {one.name}: {outcome(one, killed_by)}", flush=True)
        survived += not (killed_by or one.equivalent)
    return survived


def main() -> int:
    """Try the mutations that are asked for; return 1 where one survives that should not."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", metavar="WORDS", help="those whose file or name contains this")
    parser.add_argument("--list", action="store_true", help="name them, and run nothing")
    parser.add_argument("--jobs", type=int, default=2, help="how many at once (default 2)")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for each of its tests (default 300)")
    asked = parser.parse_args()
    chosen = [(file, one) for file, found in MUTATIONS.items() for one in found if asked.only in f"{file}: {one.name}"]
    if asked.list:
        print("\n".join(f"linfed/{file}: {one.name} ({one.tests})" for file, one in chosen))
        return 0
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder, ThreadPoolExecutor(asked.jobs) as pool:
        try:
            survived = survivors(chosen, asked.timeout, Path(folder), pool)
        finally:
            pool.shutdown(cancel_futures=True)
    print(f"{len(chosen)} mutations, {survived} survived that should not have")
    return int(survived > 0)


if __name__ == "__main__":
    sys.exit(main())
